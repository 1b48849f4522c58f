"""The part of a workload that is about gates: which messages have some, and what operators set.

It draws from chances of its own, so that a seed without gates is the same whatever is changed here.
"""

from collections.abc import Callable
from random import Random

from fila.core.commands import Command, DeleteConfig, GetConfig, ListConfig, SetConfig
from fila.core.model import NO_GATES, GateKeys


class Gating:
    """Which messages have gates, and what is set about these: a plan of its own, with chances of its own."""

    NAMES = ("hot", "api", "tenant:1", "tenant:2", "tenant:31")
    SETS = (
        GateKeys(("hot",)),
        GateKeys(("api",)),
        GateKeys(("hot", "api")),
        GateKeys((), ("hot",)),
        GateKeys(("tenant:1",), ("tenant:1",)),
        GateKeys(("tenant:2", "hot"), ("api",)),
        GateKeys(("tenant:31",)),
        NO_GATES,
    )

    def __init__(self, seed: int) -> None:
        self._random = random = Random(seed ^ 0x6A7E5)
        self.used = random.random() < 0.5
        # By key: always the same gates, or any of some.
        self._choices: dict[str, tuple[GateKeys, ...]] = {}
        self._single = random.random() < 0.5
        self._plain = random.choice((0.0, 0.3, 0.6))
        self._changes = random.choice((0.0, 0.003, 0.03))
        self._rates = random.choice(((0.5, 5, 50), (20, 100, 1_000), (1_000, 5_000)))

    def gates_of(
        self, keys: list[str], key_index: list[int] | None, count: int
    ) -> tuple[list[GateKeys] | None, list[int] | None]:
        """Return the gates of a batch."""
        if not self.used:
            return None, None
        random = self._random
        of_key = [self._choices_of(key) for key in keys]
        found = [
            random.choice(of_key[0 if key_index is None else key_index[place]]) for place in range(count)
        ]
        gates = list(dict.fromkeys(found))
        if gates == [NO_GATES]:
            return None, None
        return gates, None if len(gates) == 1 else [gates.index(each) for each in found]

    def _choices_of(self, key: str) -> tuple[GateKeys, ...]:
        choices = self._choices.get(key)
        if choices is None:
            random = self._random
            if random.random() < self._plain:
                choices = (NO_GATES,)
            elif self._single:
                choices = (random.choice(self.SETS[:2]),)
            else:
                choices = tuple(random.choices(self.SETS, k=3))
            self._choices[key] = choices
        return choices

    def opening(self, request: Callable[[], int]) -> list[Command]:
        """Return what is set from the beginning."""
        if not self.used:
            return []
        keys = ("throttle.hot", "throttle.api", "concurrency.*", "throttle.tenant:*")
        return [SetConfig(request(), key, self._value(key)) for key in keys if self._random.random() < 0.8]

    def change(self, request: Callable[[], int]) -> Command | None:
        """Return a change of the configuration, now and then."""
        random = self._random
        if not self.used or random.random() >= self._changes:
            return None
        kind = random.choice(("throttle", "throttle", "concurrency", "pause", "other"))
        key = f"{kind}.{random.choice((*self.NAMES, 'tenant:*', 'tenant:3*', '*'))}"
        draw = random.random()
        if draw < 0.15:
            return DeleteConfig(request(), key)
        if draw < 0.2:
            return GetConfig(request(), key)
        if draw < 0.25:
            return ListConfig(request(), random.choice(("", kind)))
        if kind != "other" and draw < 0.45:
            return SetConfig(request(), key, random.choice(("", "", "", "bad")))
        return SetConfig(request(), key, self._value(key))

    def _value(self, key: str) -> str:
        random = self._random
        if key.startswith("throttle"):
            rate = random.choice((*self._rates, 0)) if random.random() < 0.3 else random.choice(self._rates)
            return f"{rate},{random.choice((1, 2.5, 10, 50))}"
        if key.startswith("concurrency"):
            return str(random.choice((0, 1, 3, 20)))
        return random.choice(("true", "true", "false"))
