"""What the checker raises."""


class Violation(Exception):  # noqa: N818 - the word of the laws
    """A law was broken: `law` names it, the message says how."""

    def __init__(self, law: str, message: str) -> None:
        super().__init__(f"{law}: {message}")
        self.law = law
