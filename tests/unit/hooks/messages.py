"""What the tests of hooks are made of: bodies, hooks with a clock that stands still, and the answer for one message."""

from fila.hooks.policy import Failure
from fila.hooks.runner import Hooks, HookSettings
from fila.wire.v1.messages_pb2 import Body


class Clock:
    """Nanoseconds that pass when they are told to."""

    def __init__(self):
        self.now_ns = 0

    def __call__(self):
        return self.now_ns


def body(payload=b"", **headers):
    """Encode a body as a producer does."""
    return Body(headers=headers, payload=payload).SerializeToString()


def batch(*bodies):
    """Lay bodies back to back, as a batch comes in."""
    return b"".join(bodies), [len(each) for each in bodies]


def hooks(on_enqueue=None, on_failure=None, *, clock=None, **settings):
    """Build the hooks of the queue `orders`."""
    return Hooks("orders", on_enqueue, on_failure, HookSettings(**settings), clock or Clock())


def on_enqueue(statements):
    """Return a script whose hook is these statements."""
    return f"function on_enqueue(msg)\n{statements}\nend"


def routed(statements, *bodies, **settings):
    """Run statements as on_enqueue of some messages, or of one without headers."""
    return hooks(on_enqueue(statements), **settings).route(*batch(*(bodies or (body(),))))


def answer(statements, **headers):
    """Return the routing of one message; it must not have failed."""
    routings = routed(statements, body(**headers))
    assert not routings.errors, routings.errors
    return routings.of(0)


def error(statements, **headers):
    """Return the error of one message; it must have failed."""
    routings = routed(statements, body(**headers))
    return routings.errors[0]


def failure(attempts=1, text="boom", **headers):
    """Return a failed attempt."""
    return Failure(body(**headers), "0190-id", attempts, text)
