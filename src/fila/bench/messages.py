"""The messages that the load is made of: random payloads, numbered fairness keys, batches in columns.

A batch is built when it is sent, as a client must that gets its messages one by one; only the payloads exist
before. Knows nothing of streams.
"""

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fila.wire.v1 import messages_pb2, service_pb2
from fila.wire.varint import varint

# Together more than any compression window, so that no two payloads that meet are alike.
PAYLOAD_POOL_BYTES = 4 * 1024 * 1024
PAYLOAD_POOL_MESSAGES_MAX = 16_384

_PAYLOAD_TAG = b"\x1a"


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that is ready to be sent: the encoded `messages` field of a ProduceRequest."""

    field: bytes
    count: int


class MessageSource:
    """An endless, repeatable stream of messages over `keys` fairness keys.

    The keys come in turn, or, with `shuffle_seed`, at random. Two sources of one seed give the same keys.
    """

    def __init__(self, *, payload_bytes: int, keys: int, shuffle_seed: int | None = None) -> None:
        self.payload_bytes = payload_bytes
        self._payloads = make_payloads(payload_bytes)
        self._keys = [f"key-{number:06d}" for number in range(keys)]
        self._random = None if shuffle_seed is None else random.Random(shuffle_seed)
        self._position = 0

    def next_payload(self) -> bytes:
        """Return the next payload."""
        self._position += 1
        return self._payloads[self._position % len(self._payloads)]

    def next_key(self) -> str:
        """Return the key of the message after the last payload."""
        if self._random is not None:
            return self._random.choice(self._keys)
        return self._keys[self._position % len(self._keys)]

    def batches(self, size: int) -> Iterator[Batch]:
        """Build batches of `size` messages for ever."""
        payloads, keys, draw = self._payloads, self._keys, self._random
        while True:
            start = self._position
            places = range(start, start + size)
            self._position += size
            if draw is None:
                batch_keys = [keys[place % len(keys)] for place in places]
            else:
                batch_keys = draw.choices(keys, k=size)
            yield build_batch([payloads[place % len(payloads)] for place in places], batch_keys)


def make_payloads(payload_bytes: int) -> list[bytes]:
    """Return a pool of random payloads."""
    count = max(1, min(PAYLOAD_POOL_MESSAGES_MAX, PAYLOAD_POOL_BYTES // max(1, payload_bytes)))
    return [os.urandom(payload_bytes) for _ in range(count)]


def build_batch(payloads: Sequence[bytes], keys: Sequence[str], weight: int = 1) -> Batch:
    """Put messages into columns, each body the encoding of a Body with a payload and no headers."""
    parts: list[bytes] = []
    sizes: list[int] = []
    prefixes: dict[int, bytes] = {}
    for payload in payloads:
        length = len(payload)
        prefix = prefixes.get(length)
        if prefix is None:
            prefix = prefixes[length] = _PAYLOAD_TAG + varint(length)
        parts += (prefix, payload)
        sizes.append(length + len(prefix))
    places: dict[str, int] = {}
    index = [places.setdefault(key, len(places)) for key in keys]
    columns = messages_pb2.MessageColumns(
        bodies=b"".join(parts),
        sizes=sizes,
        keys=list(places),
        key_index=index if len(places) > 1 else (),
        weights=[weight] * len(sizes) if weight != 1 else (),
    )
    return Batch(service_pb2.ProduceRequest(messages=columns).SerializeToString(), len(sizes))
