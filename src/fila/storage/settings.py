"""The records of the runtime configuration and of buckets; they are laid out as those in `records.py`."""

from struct import Struct
from typing import NamedTuple

from fila.storage.records import PAYLOAD, Reader, check, seal, text_bytes, text_of
from fila.storage.store import Family

_SETTING = Struct("<HH")
_BUCKET = Struct("<qQ")
# What a record of a bucket can hold; a bucket with more begins with this.
_TOKENS_MAX = (1 << 63) - 1


class Setting(NamedTuple):
    """An entry of the runtime configuration."""

    key: str
    value: str


class Bucket(NamedTuple):
    """How full the bucket of a rate gate was."""

    name: str
    tokens: int
    at_ns: int


def encode_setting(key: str, value: str) -> bytes:
    """Encode an entry of the runtime configuration."""
    return seal(_pair(text_bytes(key), text_bytes(value)))


def _pair(first: bytes, second: bytes) -> bytes:
    return _SETTING.pack(len(first), len(second)) + first + second


def decode_setting(key: bytes, value: bytes) -> Setting:
    """Decode an entry of the runtime configuration."""
    check(Family.CONFIG, key, value, _SETTING.size)
    key_bytes, value_bytes = _SETTING.unpack_from(value, PAYLOAD)
    reader = Reader(Family.CONFIG, key, value, PAYLOAD + _SETTING.size)
    setting = Setting(reader.text(key_bytes), reader.text(value_bytes))
    reader.finish()
    return setting


def encode_bucket(name: str, tokens: int, at_ns: int) -> bytes:
    """Encode how full a bucket is."""
    return seal(_BUCKET.pack(max(-_TOKENS_MAX, min(tokens, _TOKENS_MAX)), at_ns) + text_bytes(name))


def decode_bucket(key: bytes, value: bytes) -> Bucket:
    """Decode how full a bucket was."""
    check(Family.GATES, key, value, _BUCKET.size)
    tokens, at_ns = _BUCKET.unpack_from(value, PAYLOAD)
    return Bucket(text_of(Family.GATES, key, value[PAYLOAD + _BUCKET.size :]), tokens, at_ns)
