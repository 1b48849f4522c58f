"""One script in its own Lua 5.4: compiled, guarded, called with whole batches. The only place that knows lupa.

Only numbers, strings and booleans cross over, as flat arguments and results: nothing of Python is ever in the runtime.
What the sandbox allows is in `sandbox.lua`, how a batch runs in `driver.lua`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

import lupa.lua54 as lupa  # type: ignore[import-untyped]  # its stubs know no options of a runtime

from fila import limits
from fila.errors import InvalidArgumentError

# With so much of its memory in use before a call, garbage is collected: once in some hundred calls.
_USED_PERCENT_MAX: Final = 30
# Of its memory a script may have kept so much before a call; beyond it, it begins anew.
_KEPT_PERCENT_MAX: Final = 60
# What an argument takes besides its bytes: its place on the stack, its place in a table, the head of a string.
_ARGUMENT_BYTES: Final = 128
_RESERVE_BYTES: Final = 128 * limits.KIB
# The columns of the largest call, which the driver keeps: not the script's memory.
_COLUMNS_BYTES: Final = 64 * limits.KIB
# Configuration entries that go over in one call.
_CONFIG_ENTRIES_PER_CALL: Final = 200


@dataclass(frozen=True, slots=True)
class ScriptSpec:
    """A script, what it may use, and whether its source names the payload and what leads to the configuration."""

    hook: str
    queue: str
    source: bytes
    timeout_ms: int
    memory_bytes: int
    reads_payload: bool
    reads_config: bool


@cache
def _text_of(name: str) -> bytes:
    return files("fila.hooks").joinpath(name).read_bytes()


def _deny(*_: object) -> str:
    raise AttributeError("closed to scripts")


def describe(hook: str, what: bytes, line: int) -> tuple[str, int]:
    """Return an error of Lua as text, and the line that it names or that is known otherwise."""
    text = what.decode("utf-8", "replace")
    named = re.match(rf"{hook}:(\d+): ", text)
    return (text[named.end() :], int(named[1])) if named else (text, line)


class Script:
    """A script and the runtime it lives in, which is replaced when it is not fit for use any more.

    Raises InvalidArgumentError with line and reason if the script does not compile or lacks its function.
    """

    def __init__(self, spec: ScriptSpec) -> None:
        self.spec = spec
        self.rebuilds = 0
        self._config: dict[bytes, bytes] = {}
        self._idle_bytes = 0
        self._runtime: Any = None
        self._call: Any = None
        self._configure: Any = None
        self._collect: Any = None
        self._build()

    def discard(self) -> None:
        """Let the runtime go: the next call begins in a fresh one."""
        self._runtime = self._call = self._configure = self._collect = None

    def set_config(self, config: Mapping[str, str]) -> None:
        """Let `fila.get` read these from now on."""
        if not self.spec.reads_config:
            return
        values = {key.encode(): value.encode() for key, value in config.items()}
        size = sum(len(key) + len(value) + limits.HOOK_CONFIG_ENTRY_BYTES for key, value in values.items())
        if size > limits.HOOK_CONFIG_BYTES_MAX:
            raise InvalidArgumentError(
                f"the runtime configuration takes {size:,} bytes: hooks can read {limits.HOOK_CONFIG_BYTES_MAX:,}"
            )
        changes: dict[bytes, bytes | bool] = {
            key: value for key, value in values.items() if self._config.get(key) != value
        }
        changes |= dict.fromkeys(self._config.keys() - values.keys(), False)
        self._config = values
        if self._runtime is not None:
            self._push_config(changes)

    def call(
        self,
        count: int,
        seconds_in_all: float,
        failures_before: int,
        failures_max: int,
        bodies: bytes,
        columns: Sequence[Any],
        column_bytes: int = 0,
    ) -> tuple[Any, ...]:
        """Run the hook for `count` messages and return what `driver.lua` says.

        Raises MemoryError where the runtime has no room for the answer; then it has to be discarded.
        """
        runtime = self._ready()
        copies = 2 if self.spec.reads_payload else 1
        arriving = len(bodies) * copies + column_bytes + len(columns) * _ARGUMENT_BYTES
        bound = self._idle_bytes + self.spec.memory_bytes + arriving
        # Room for what arrives is certain: without it, lupa would abort the process.
        runtime.set_max_memory(bound + _RESERVE_BYTES, total=True)
        try:
            result = self._call(count, seconds_in_all, bound, failures_before, failures_max, bodies, *columns)
        except lupa.LuaError as error:
            raise MemoryError(str(error)) from error
        assert type(result) is tuple
        return result

    def _ready(self) -> Any:
        if self._runtime is not None and self._used_percent() > _USED_PERCENT_MAX:
            self._collect()
            if self._used_percent() > _KEPT_PERCENT_MAX:
                self.discard()
        if self._runtime is None:
            self.rebuilds += 1
            self._build()
        return self._runtime

    def _used_percent(self) -> float:
        used = self._runtime.get_memory_used(total=True) - self._idle_bytes
        return float(used * 100 / self.spec.memory_bytes)

    def _build(self) -> None:
        spec = self.spec
        runtime = lupa.LuaRuntime(
            encoding=None,
            register_eval=False,
            register_builtins=False,
            unpack_returned_tuples=False,
            attribute_filter=_deny,
            max_memory=0,
        )
        define, configure, call, collect = runtime.execute(
            _text_of("driver.lua"),
            _text_of("sandbox.lua"),
            _text_of("body.lua"),
            _text_of("json.lua"),
            _text_of("protobuf.lua"),
            runtime.table_from(self._settings()),
            name=b"=driver",
            mode=b"t",
        )
        collect()
        self._runtime, self._call, self._configure, self._collect = runtime, call, configure, collect
        self._idle_bytes = runtime.get_memory_used(total=True) + _COLUMNS_BYTES
        self._push_config(self._config)
        bound = self._idle_bytes + spec.memory_bytes
        runtime.set_max_memory(bound + len(spec.source) + _RESERVE_BYTES, total=True)
        try:
            problem = define(spec.source, bound, spec.reads_payload)
        except lupa.LuaError as error:
            problem = (str(error).encode(), 0)
        if problem is not None:
            self.discard()
            text, line = describe(spec.hook, *problem)
            if text == "out of time":
                text = f"it did not end within {spec.timeout_ms} ms"
            raise InvalidArgumentError(
                f"{spec.hook}, line {line}: {text}" if line else f"{spec.hook}: {text}"
            )

    def _settings(self) -> dict[bytes, object]:
        return {
            b"name": self.spec.hook.encode(),
            b"queue": self.spec.queue.encode(),
            b"seconds": self.spec.timeout_ms / 1000,
            b"header_bytes_max": limits.HOOK_HEADER_BYTES_MAX,
            b"headers_max": limits.HOOK_HEADERS_MAX,
            b"key_bytes_max": limits.GATE_KEY_BYTES_MAX,
            b"gates_max": limits.GATES_PER_MESSAGE_MAX,
            b"weight_max": limits.WEIGHT_MAX,
            b"cost_max": limits.COST_MAX,
            b"delay_ms_max": limits.DELAY_MS_MAX,
            b"error_bytes_max": limits.ERROR_BYTES_MAX,
        }

    def _push_config(self, changes: Mapping[bytes, bytes | bool]) -> None:
        if not changes:
            return
        self._collect()
        before = self._runtime.get_memory_used(total=True)
        # What is there, what comes, and a table that grows to twice its size.
        self._runtime.set_max_memory(before + 4 * limits.HOOK_CONFIG_BYTES_MAX, total=True)
        flat = [part for entry in changes.items() for part in entry]
        for start in range(0, len(flat), 2 * _CONFIG_ENTRIES_PER_CALL):
            self._configure(*flat[start : start + 2 * _CONFIG_ENTRIES_PER_CALL])
        self._collect()
        # It is the broker's, and not counted as the script's.
        self._idle_bytes += self._runtime.get_memory_used(total=True) - before
