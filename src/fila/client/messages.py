"""A message as its consumer sees it.

Two kinds share one face: those that came in the columns of a Subscribe stream, decoded only where someone looks, and
those that a unary Lease returned. What an ack does is up to the holder: a message only says which lease it means.
The asynchronous and the synchronous face differ in what settling returns.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Generator, Mapping
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

from fila.client.arguments import checked_error, checked_timeout_ms
from fila.client.bodies import decode_body, lone_payload
from fila.wire.v1 import messages_pb2

if TYPE_CHECKING:
    from fila.client.held import Held

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Settle(IntEnum):
    """What a consumer says of a lease."""

    ACK = 0
    NACK = 1
    EXTEND = 2
    RELEASE = 3


def from_unix_ms(unix_ms: int) -> datetime:
    """Return the time, in UTC."""
    return _EPOCH + timedelta(milliseconds=unix_ms)


class BaseMessage(ABC):
    """A leased message, without what settles it."""

    __slots__ = ()

    @property
    @abstractmethod
    def id(self) -> str:
        """The message's id, a UUIDv7."""

    @property
    @abstractmethod
    def headers(self) -> Mapping[str, str]:
        """The headers, as the producer gave them."""

    @property
    @abstractmethod
    def payload(self) -> bytes:
        """The payload, as the producer gave it."""

    @property
    @abstractmethod
    def fairness_key(self) -> str:
        """Whom the message belongs to."""

    @property
    @abstractmethod
    def weight(self) -> int:
        """The weight that the message gave its key."""

    @property
    @abstractmethod
    def throttle_keys(self) -> tuple[str, ...]:
        """The limits that the message counts against."""

    @property
    @abstractmethod
    def attempt_count(self) -> int:
        """How often the message was nacked, or its lease ran out: 0 on the first delivery."""

    @property
    @abstractmethod
    def queue(self) -> str:
        """The queue that it came from."""

    @property
    @abstractmethod
    def offset(self) -> int:
        """Its place in the queue, from 0."""

    @property
    @abstractmethod
    def epoch(self) -> int:
        """Tells this lease from an earlier or later one of the same message."""

    @property
    @abstractmethod
    def enqueued_at(self) -> datetime:
        """When the broker took it."""

    @property
    @abstractmethod
    def leased_at(self) -> datetime:
        """When the broker handed it out."""

    @property
    @abstractmethod
    def lease_expires_at(self) -> datetime:
        """When the broker gives it to someone else, unless it is settled or extended before."""

    @abstractmethod
    def _settle(self, action: Settle, argument: str | int) -> Any: ...

    def __repr__(self) -> str:
        # Which way it came is no concern of its user.
        name = "SyncMessage" if isinstance(self, SyncMessage) else "Message"
        return f"<{name} {self.id} {self.queue}/{self.offset} key={self.fairness_key!r}>"


class Settlement(Protocol):
    """What became of an ack, nack, extension or release."""

    def __await__(self) -> Generator[Any, None, None]:
        """Go on as soon as may be: see `Message.ack`."""

    def durable(self, timeout_seconds: float | None = None) -> Awaitable[None]:
        """Wait until the broker has it on disk; raises MessageNotFoundError if the lease had ended before.

        Raises OutcomeUnknownError after `timeout_seconds`, or the client's if that is None.
        """


class Message(BaseMessage):
    """A leased message: read it, then ack or nack it."""

    __slots__ = ()

    def ack(self) -> Settlement:
        """Say that the work is done.

        The ack is on its way when this returns, and is sent again if the connection is lost. Awaiting it waits only
        while too many are unconfirmed; to wait until the broker has it on disk, `await message.ack().durable()`.
        """
        return self._settle(Settle.ACK, "")  # type: ignore[no-any-return]

    def nack(self, error: str | BaseException = "") -> Settlement:
        """Say that the work failed, and why: the message is delivered again. Await it as an ack.

        Of an exception the broker is told its type and text.
        """
        return self._settle(Settle.NACK, checked_error(error))  # type: ignore[no-any-return]

    def extend(self, seconds: float) -> Settlement:
        """Keep the lease for this long from now.

        Awaiting it waits for the broker's answer, and raises MessageNotFoundError if the lease has ended.
        """
        return self._settle(Settle.EXTEND, checked_timeout_ms(seconds))  # type: ignore[no-any-return]

    def release(self) -> Settlement:
        """Give the message back untouched: no attempt is counted. Await it as an ack."""
        return self._settle(Settle.RELEASE, "")  # type: ignore[no-any-return]


class SyncSettlement(Protocol):
    """What became of an ack, nack or release."""

    def durable(self, timeout_seconds: float | None = None) -> None:
        """Wait until the broker has it on disk; raises MessageNotFoundError if the lease had ended before.

        Raises OutcomeUnknownError after `timeout_seconds`, or the client's if that is None.
        """


class SyncMessage(BaseMessage):
    """A leased message of the synchronous client: read it, then ack or nack it."""

    __slots__ = ()

    def ack(self) -> SyncSettlement:
        """Say that the work is done.

        The ack is on its way when this returns, and is sent again if the connection is lost. This waits only while too
        many are unconfirmed; `message.ack().durable()` waits until the broker has it on disk.
        """
        return self._settle(Settle.ACK, "")  # type: ignore[no-any-return]

    def nack(self, error: str | BaseException = "") -> SyncSettlement:
        """Say that the work failed, and why: the message is delivered again. It waits as an ack does.

        Of an exception the broker is told its type and text.
        """
        return self._settle(Settle.NACK, checked_error(error))  # type: ignore[no-any-return]

    def extend(self, seconds: float) -> None:
        """Keep the lease for this long from now; raises MessageNotFoundError if it has ended."""
        self._settle(Settle.EXTEND, checked_timeout_ms(seconds)).durable()

    def release(self) -> SyncSettlement:
        """Give the message back untouched: no attempt is counted. It waits as an ack does."""
        return self._settle(Settle.RELEASE, "")  # type: ignore[no-any-return]


class Delivered(BaseMessage):
    """A place in a delivery; columns are read when asked for."""

    __slots__ = ("_headers", "_payload", "_start", "held", "position")

    def __init__(self, held: "Held", position: int, start: int) -> None:
        self.held = held
        self.position = position
        self._start = start
        # None until someone looks.
        self._headers: dict[str, str] | None = None
        self._payload: bytes | None = None

    def _decode(self) -> tuple[dict[str, str], bytes]:
        held, start = self.held, self._start
        decoded = decode_body(held.bodies[start : start + held.sizes[self.position]])
        self._headers, self._payload = decoded
        return decoded

    @property
    def id(self) -> str:
        return self.held.message_id(self.position)

    @property
    def headers(self) -> Mapping[str, str]:
        headers = self._headers
        return self._decode()[0] if headers is None else headers

    @property
    def payload(self) -> bytes:
        payload = self._payload
        if payload is None:
            held = self.held
            payload = lone_payload(held.bodies, self._start, held.sizes[self.position])
            if payload is None:
                return self._decode()[1]
            self._payload = payload
        return payload

    @property
    def fairness_key(self) -> str:
        held = self.held
        return held.keys[held.key_index[self.position] if held.key_index else 0]

    @property
    def weight(self) -> int:
        return self.held.weights[self.position] if self.held.weights else 1

    @property
    def throttle_keys(self) -> tuple[str, ...]:
        return ()

    @property
    def attempt_count(self) -> int:
        return self.held.attempts[self.position] if self.held.attempts else 0

    @property
    def queue(self) -> str:
        return self.held.queue

    @property
    def offset(self) -> int:
        return self.held.offset(self.position)

    @property
    def epoch(self) -> int:
        return self.held.epoch

    @property
    def enqueued_at(self) -> datetime:
        return from_unix_ms(self.held.enqueued_at_ms(self.position))

    @property
    def leased_at(self) -> datetime:
        return from_unix_ms(self.held.leased_at_ms)

    @property
    def lease_expires_at(self) -> datetime:
        return from_unix_ms(self.held.lease_expires_at_ms)

    def _settle(self, action: Settle, argument: str | int) -> Any:
        return self.held.holder.settle(self, action, argument)


class DeliveredMessage(Delivered, Message):
    """A message of a stream, for asyncio."""

    __slots__ = ()

    def ack(self) -> Settlement:
        # As the parent's, with a call less: this is what is done with nearly every message.
        return self.held.holder.settle(self, Settle.ACK, "")  # type: ignore[no-any-return]


class DeliveredSyncMessage(Delivered, SyncMessage):
    """A message of a stream, for threads."""

    __slots__ = ()


class LeaseSettler(Protocol):
    """Settles leases by id and epoch, over unary calls."""

    def settle_leased(self, message: BaseMessage, action: Settle, argument: str | int) -> Any:
        """Start it; the result is for whoever wants to know."""


class Leased(BaseMessage):
    """What a unary Lease returned."""

    __slots__ = ("_message", "_settler")

    def __init__(self, message: messages_pb2.Message, settler: LeaseSettler) -> None:
        self._message = message
        self._settler = settler

    @property
    def id(self) -> str:
        return self._message.id

    @property
    def headers(self) -> Mapping[str, str]:
        return dict(self._message.headers)

    @property
    def payload(self) -> bytes:
        return self._message.payload

    @property
    def fairness_key(self) -> str:
        return self._message.metadata.fairness_key

    @property
    def weight(self) -> int:
        return self._message.metadata.weight

    @property
    def throttle_keys(self) -> tuple[str, ...]:
        return tuple(self._message.metadata.throttle_keys)

    @property
    def attempt_count(self) -> int:
        return self._message.metadata.attempt_count

    @property
    def queue(self) -> str:
        return self._message.metadata.queue_id

    @property
    def offset(self) -> int:
        return self._message.metadata.offset

    @property
    def epoch(self) -> int:
        return self._message.metadata.lease_epoch

    @property
    def enqueued_at(self) -> datetime:
        return self._message.timestamps.enqueued_at.ToDatetime(UTC)

    @property
    def leased_at(self) -> datetime:
        return self._message.timestamps.leased_at.ToDatetime(UTC)

    @property
    def lease_expires_at(self) -> datetime:
        return self._message.timestamps.lease_expires_at.ToDatetime(UTC)

    def _settle(self, action: Settle, argument: str | int) -> Any:
        return self._settler.settle_leased(self, action, argument)


class LeasedMessage(Leased, Message):
    """A message of a unary Lease, for asyncio."""

    __slots__ = ()


class LeasedSyncMessage(Leased, SyncMessage):
    """A message of a unary Lease, for threads."""

    __slots__ = ()
