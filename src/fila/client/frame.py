"""What a consumer settles together: one frame on the wire, and one confirmation."""

from collections.abc import Iterator

from fila import limits
from fila.client.held import Held
from fila.client.messages import Settle
from fila.client.runs import RunsBuilder
from fila.client.waiting import Pending
from fila.errors import FilaError, MessageNotFoundError

# Some places of one delivery: the first, and how many.
Places = tuple[Held, int, int]


class Frame(Pending):
    """What was settled together, and is confirmed together."""

    __slots__ = (
        "ack",
        "count",
        "error_characters",
        "extended",
        "extends",
        "helds",
        "nacks",
        "refused",
        "release",
        "sequence",
    )

    def __init__(self) -> None:
        super().__init__()
        self.sequence = 0
        # How many messages it settles, and of which deliveries.
        self.count = 0
        self.helds: dict[int, Held] = {}
        self.ack = RunsBuilder()
        self.release = RunsBuilder()
        self.nacks: dict[str, RunsBuilder] = {}
        self.error_characters = 0
        self.extends: dict[int, RunsBuilder] = {}
        # The timeout, in ms, by epoch and position.
        self.extended: dict[tuple[int, int], int] = {}
        self.refused: list[tuple[int, int, int, str]] = []

    @property
    def has_room(self) -> bool:
        """Whether another nack may join."""
        return (
            self.error_characters < limits.SETTLE_ERRORS_CHARACTERS
            and len(self.nacks) < limits.SETTLE_ACTIONS_MAX
        )

    def settlements(self) -> Iterator[tuple[Settle, str | int, list[Places]]]:
        """Return what it says, by deliveries and places."""
        if self.extends:
            for timeout_ms, runs in self.extends.items():
                yield Settle.EXTEND, timeout_ms, self._places(runs)
        if self.ack:
            yield Settle.ACK, "", self._places(self.ack)
        for error, runs in self.nacks.items():
            yield Settle.NACK, error, self._places(runs)
        if self.release:
            yield Settle.RELEASE, "", self._places(self.release)

    def _places(self, runs: RunsBuilder) -> list[Places]:
        return [(self.helds[epoch], position, count) for epoch, position, count in runs.runs()]

    def refused_acks(self) -> int:
        """Count the acks among what was refused: messages that were worked on and come again."""
        acks = self.ack.runs()
        return sum(
            max(0, min(start + count, position + length) - max(start, position))
            for epoch, start, count, _ in self.refused
            for ack_epoch, position, length in acks
            if ack_epoch == epoch
        )

    def outcome(self, epoch: int, position: int) -> FilaError | None:
        """Return why the settlement of one message failed, or None if it is durable."""
        if self.error is not None:
            return self.error
        for refused_epoch, start, count, reason in self.refused:
            if refused_epoch == epoch and start <= position and (not count or position < start + count):
                return MessageNotFoundError(reason or "the lease had ended")
        return None
