"""The hooks of one queue: asked in batches, passed over while they fail, and never in the way of a message.

Engine and breaker meet here. What went wrong is kept for whoever asks (`status`), and never raised at a message.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fila import limits
from fila.errors import InvalidArgumentError
from fila.hooks.breaker import Breaker
from fila.hooks.columns import JudgeBatch, RouteBatch
from fila.hooks.lua import Script, ScriptSpec
from fila.hooks.policy import BreakerState, Failure, Fault, HookError, HookStatus, Routings, Verdicts

Batch = RouteBatch | JudgeBatch
# Reasons after which a runtime is not fit for use.
_DISCARDING: Final = (b"time", b"batch", b"memory")
_REASONS: Final = {
    Fault.TIME: "stopped after {timeout_ms} ms",
    Fault.BATCH: "stopped: the messages of one batch took too long together",
    Fault.MEMORY: "stopped: more than {memory_bytes:,} bytes of memory",
}


@dataclass(frozen=True, slots=True)
class HookSettings:
    """What a script may use, and when it is passed over: `[lua]` of fila.toml."""

    timeout_ms: int = 10
    memory_bytes: int = limits.MIB
    breaker_threshold: int = 3
    breaker_cooldown_ms: int = 10_000


class Hook:
    """One script with its breaker and its counters. `clock` gives nanoseconds that never go back.

    Raises InvalidArgumentError, with line and reason, for a script that cannot be a hook.
    """

    def __init__(
        self, name: str, queue: str, source: str, settings: HookSettings, clock: Callable[[], int]
    ) -> None:
        self._name = name
        self._settings = settings
        self._clock = clock
        self._breaker = Breaker(settings.breaker_threshold, settings.breaker_cooldown_ms)
        self._executions = self._failures = self._bypassed = self._duration_ns = 0
        self._last_error: HookError | None = None
        self._script = Script(_script_spec(name, queue, source, settings))

    @property
    def status(self) -> HookStatus:
        return HookStatus(
            executions=self._executions,
            failures=self._failures,
            bypassed=self._bypassed,
            duration_ns=self._duration_ns,
            rebuilds=self._script.rebuilds,
            breaker=self._breaker.state(self._clock()),
            last_error=self._last_error,
        )

    def set_config(self, config: Mapping[str, str]) -> None:
        self._script.set_config(config)

    def run(self, batch: Batch) -> None:
        """Ask the hook about the messages of `batch`, as far as its breaker and the time for a batch allow."""
        started_ns = now_ns = self._clock()
        # Of the processor, like a script's own time: a machine that is busy with others is not the script's fault.
        seconds_left = (
            self._settings.timeout_ms * limits.HOOK_BATCH_TIMEOUTS_MAX / 1e3
            + batch.count * limits.HOOK_BATCH_US_PER_MESSAGE / 1e6
        )
        while batch.done < batch.count and seconds_left > 0:
            state = self._breaker.state(now_ns)
            if state is BreakerState.OPEN:
                break
            # Half-open, one message shows whether it works again.
            count_max = 1 if state is BreakerState.HALF_OPEN else batch.count
            seconds_left -= self._run_once(batch, count_max, seconds_left)
            now_ns = self._clock()
        self._duration_ns += now_ns - started_ns
        self._bypassed += batch.count - batch.done

    def _run_once(self, batch: Batch, count_max: int, seconds_left: float) -> float:
        first = batch.done
        problems: Mapping[int, HookError]
        failures_before = self._breaker.failures_in_row()
        bodies, columns, text_bytes, count = batch.next_call(count_max)
        try:
            answer = self._script.call(
                count, seconds_left, failures_before, self._breaker.threshold, bodies, columns, text_bytes
            )
        except (InvalidArgumentError, MemoryError) as error:
            # It does not compile any more in a fresh runtime, or its runtime could not even answer.
            self._script.discard()
            batch.skip()
            fault = Fault.MEMORY if isinstance(error, MemoryError) else Fault.SCRIPT
            problems = {first: HookError(fault, str(error))}
            failures = failures_before + 1
            seconds = self._settings.timeout_ms / 1e3
        else:
            if answer[0] in _DISCARDING:
                self._script.discard()
            problems = batch.take(self._name, answer)
            failures, seconds = answer[batch.failures_in_row_at], answer[batch.seconds_at]
        run = batch.done - first
        self._executions += run
        if problems:
            self._failures += len(problems)
            batch.errors.update((place, self._explain(error)) for place, error in problems.items())
            self._last_error = batch.errors[max(problems)]
        self._breaker.record(self._clock(), failures_in_row=failures, any_success=run > len(problems))
        return float(seconds)

    def _explain(self, error: HookError) -> HookError:
        reason = _REASONS.get(error.fault)
        if reason is None:
            return error
        settings = self._settings
        text = reason.format(timeout_ms=settings.timeout_ms, memory_bytes=settings.memory_bytes)
        return HookError(error.fault, text, error.line)


class Hooks:
    """The Policy of a queue that has scripts. A hook that it does not have leaves everything open."""

    def __init__(
        self,
        queue: str,
        on_enqueue: str | None,
        on_failure: str | None,
        settings: HookSettings,
        clock: Callable[[], int],
    ) -> None:
        self._hooks = {
            name: Hook(name, queue, source, settings, clock)
            for name, source in (("on_enqueue", on_enqueue), ("on_failure", on_failure))
            if source is not None
        }

    @property
    def status(self) -> Mapping[str, HookStatus]:
        """How each hook fares, by its name."""
        return {name: hook.status for name, hook in self._hooks.items()}

    def set_config(self, config: Mapping[str, str]) -> None:
        """Take over the runtime configuration. Raises InvalidArgumentError if it is larger than hooks can read."""
        for hook in self._hooks.values():
            hook.set_config(config)

    def route(self, bodies: bytes, sizes: Sequence[int]) -> Routings:
        batch = RouteBatch(bodies, sizes)
        hook = self._hooks.get("on_enqueue")
        if hook:
            hook.run(batch)
        return batch.build()

    def judge(self, failures: Sequence[Failure]) -> Verdicts:
        batch = JudgeBatch(failures)
        hook = self._hooks.get("on_failure")
        if hook:
            hook.run(batch)
        return batch.build()


def _script_spec(name: str, queue: str, source: str, settings: HookSettings) -> ScriptSpec:
    try:
        encoded = source.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"{name}: the script is no text") from error
    if len(encoded) > limits.HOOK_SOURCE_BYTES_MAX:
        raise InvalidArgumentError(
            f"{name}: a script has at most {limits.HOOK_SOURCE_BYTES_MAX:,} bytes, not {len(encoded):,}"
        )
    # What a source does not name it cannot reach, but for a name that it puts together.
    words = set(re.findall(rb"[A-Za-z_][A-Za-z0-9_]*", encoded))
    return ScriptSpec(
        hook=name,
        queue=queue,
        source=encoded,
        timeout_ms=settings.timeout_ms,
        memory_bytes=settings.memory_bytes,
        reads_payload=b"payload" in words,
        reads_config=b"fila" in words or b"_ENV" in words,
    )
