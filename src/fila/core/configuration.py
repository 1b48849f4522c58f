"""The runtime configuration: keys and values that outlive a restart. Keys about gates are checked before they are taken."""

from collections.abc import Callable

from fila import limits
from fila.core import commands as c
from fila.core.gates.rules import Entry, Limit, read_key, read_value
from fila.core.outcome import DropConfig, PutConfig, Write
from fila.errors import ConfigKeyNotFoundError, FilaError, InvalidArgumentError, LimitError

# Told which gates have another limit, or none.
Changed = Callable[[Entry, Limit | None], None]


class Configuration:
    """All entries, by key."""

    def __init__(self, changed: Changed) -> None:
        self._entries: dict[str, str] = {}
        self._changed = changed

    def set(self, key: str, value: str, writes: list[Write]) -> FilaError | None:
        """Give a key a value, and return why not, or None. A key about gates is removed by an empty value."""
        try:
            check_key(key)
            check_value(value)
            entry = read_key(key)
            if entry is not None and not value:
                self.delete(key, writes)
                return None
            limit = None if entry is None else read_value(entry, value)
        except InvalidArgumentError as error:
            return error
        before = self._entries.get(key)
        if before is None and len(self._entries) >= limits.CONFIG_ENTRIES_MAX:
            return LimitError(
                f"the configuration has {limits.CONFIG_ENTRIES_MAX:,} entries, which is the limit: delete one first"
            )
        if before != value:
            self._entries[key] = value
            writes.append(PutConfig(key, value))
            if entry is not None:
                self._changed(entry, limit)
        return None

    def delete(self, key: str, writes: list[Write]) -> bool:
        """Remove a key, and say whether it was there."""
        if self._entries.pop(key, None) is None:
            return False
        writes.append(DropConfig(key))
        entry = read_key(key)
        if entry is not None:
            self._changed(entry, None)
        return True

    def get(self, key: str) -> str | FilaError:
        """Return a key's value, or the error that there is none."""
        value = self._entries.get(key)
        return no_key(key) if value is None else value

    def _list(self, prefix: str) -> tuple[tuple[str, str], ...]:
        """Return the keys with this prefix, in order, with their values."""
        return tuple(sorted(entry for entry in self._entries.items() if entry[0].startswith(prefix)))

    def restore(self, record: PutConfig) -> None:
        """Take back an entry. Raises InvalidArgumentError where this version cannot read its value."""
        entry = read_key(record.key)
        limit = None if entry is None else read_value(entry, record.value)
        self._entries[record.key] = record.value
        if entry is not None:
            self._changed(entry, limit)

    def answer(
        self, command: "c.SetConfig | c.DeleteConfig | c.GetConfig | c.ListConfig", writes: list[Write]
    ) -> object:
        """Do what a command asks, and return the reply."""
        if isinstance(command, c.SetConfig):
            return self.set(command.key, command.value, writes)
        if isinstance(command, c.DeleteConfig):
            return None if self.delete(command.key, writes) else no_key(command.key)
        return self.get(command.key) if isinstance(command, c.GetConfig) else self._list(command.prefix)


def no_key(key: str) -> ConfigKeyNotFoundError:
    """Say that there is no such key."""
    return ConfigKeyNotFoundError(f"the configuration has no key {key[:64]!r}")


def check_key(key: str) -> None:
    """Refuse what cannot be a key."""
    if not key:
        raise InvalidArgumentError("the configuration key is empty")
    _check_bytes("configuration key", key, limits.CONFIG_KEY_BYTES_MAX)


def check_value(value: str) -> None:
    """Refuse a value that is too long."""
    _check_bytes("configuration value", value, limits.CONFIG_VALUE_BYTES_MAX)


def _check_bytes(what: str, text: str, maximum: int) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > maximum:
        raise InvalidArgumentError(f"a {what} of {size:,} bytes is longer than {maximum:,}")
