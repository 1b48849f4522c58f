"""What every RPC shares: decoding a request, answering with a status.

All handlers take and give bytes: so a frame that is no protobuf gets INVALID_ARGUMENT instead of gRPC's INTERNAL, a
frame is measured before it is unpacked, and the hot streams choose themselves what they decode.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn, TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from fila import limits
from fila.core.model import check_queue_name
from fila.errors import FilaError, InvalidArgumentError
from fila.wire.status import status_of, trailers_of

Call: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
Handler: TypeAlias = "grpc.RpcMethodHandler[bytes, bytes]"
Request = TypeVar("Request", bound=Message)


def decode(kind: type[Request], frame: bytes, bytes_max: int = limits.FRAME_BYTES_MAX) -> Request:
    """Return the message that a frame holds. Raises InvalidArgumentError for a frame too large or no protobuf."""
    if len(frame) > bytes_max:
        raise InvalidArgumentError(
            f"a {kind.DESCRIPTOR.name} has at most {bytes_max:,} bytes, not {len(frame):,}"
        )
    try:
        return kind.FromString(frame)
    except DecodeError:
        raise InvalidArgumentError(
            f"the frame is no {kind.DESCRIPTOR.full_name}, or has text that is not UTF-8"
        ) from None


async def read_frame(call: Call) -> bytes | None:
    """Return the next frame of a stream; None when the client has ended its side."""
    frame: object = await call.read()
    return frame if isinstance(frame, bytes) else None


async def write_frame(call: Call, frame: bytes) -> None:
    """Write a frame of a stream; a call that is gone is cancelled."""
    try:
        await call.write(frame)
    except grpc.aio.InternalError:
        # gRPC cancels the handler of a call that broke, but a moment after it fails the write.
        raise asyncio.CancelledError from None


async def refuse(call: Call, error: FilaError) -> NoReturn:
    """End a call with the status of an error."""
    code, details = status_of(error)
    await call.abort(code, details, trailers_of(error))
    raise AssertionError


def unary(
    kind: type[Request],
    answer: Callable[[Request], Awaitable[bytes]],
    bytes_max: int = limits.REQUEST_BYTES_MAX,
    check: Callable[[bytes], None] | None = None,
) -> Handler:
    """Return the handler of a unary RPC. `answer` returns the encoded response or raises FilaError.

    `check` looks at the frame before it is unpacked.
    """

    async def handle(frame: bytes, call: Call) -> bytes:
        try:
            if check is not None:
                check(frame)
            return await answer(decode(kind, frame, bytes_max))
        except FilaError as error:
            await refuse(call, error)

    return grpc.unary_unary_rpc_method_handler(handle)


def checked_queue(name: str) -> str:
    """Return a queue's name that may exist. The quick test comes first: nearly every name passes it."""
    if not (
        0 < len(name) <= limits.QUEUE_NAME_BYTES_MAX
        and name.isascii()
        and name.isprintable()
        and " " not in name
    ):
        check_queue_name(name)
    return name


def shortened(error: str) -> str:
    """Return a client's error text, cut to what is kept: it is for people, who need its beginning."""
    if len(error) <= limits.ERROR_BYTES_MAX // 4:
        return error
    return error.encode()[: limits.ERROR_BYTES_MAX].decode(errors="ignore")


def checked_timeout_ms(timeout_ms: int) -> int:
    """Return how long a lease is to be extended."""
    if not 1 <= timeout_ms <= limits.VISIBILITY_TIMEOUT_MS_MAX:
        raise InvalidArgumentError(
            f"timeout {timeout_ms} ms is not in 1 to {limits.VISIBILITY_TIMEOUT_MS_MAX:,} ms"
        )
    return timeout_ms
