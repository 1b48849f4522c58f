"""Runs cases: undisturbed first, to count the bytes, and then with the connection lost at points between the first and the last."""

import asyncio
from contextlib import asynccontextmanager

from tests.integration.loss import first
from tests.integration.loss.scene import HANG_SECONDS, scene
from tests.integration.proxy import Direction, Fault, Kind

from fila import AsyncClient

# Each has a client, a proxy and a queue of its own; what they share is the processor.
AT_ONCE = 8


class Runner:
    """Loses connections to one broker."""

    def __init__(self, address, direct):
        self._address = address
        self._direct = direct
        self._places = asyncio.Semaphore(AT_ONCE)
        # How many faults there were, and how many came after the end of what they were for.
        self.struck = 0
        self.late = 0

    async def _run(self, case, fault):
        connected = case not in first.CASES
        async with (
            self._places,
            scene(self._address, self._direct, fault, connected=connected) as (setting, proxy),
        ):
            try:
                async with asyncio.timeout(HANG_SECONDS):
                    await self._direct.create_queue(setting.queue)
                    await case(setting)
                    await self._direct.delete_queue(setting.queue)
            except BaseException as error:
                error.add_note(f"{case.__name__}: {fault}")
                raise
            if fault is not None:
                self.struck += proxy.has_struck
                self.late += not proxy.has_struck
            return dict(proxy.carried)

    async def run(self, case, faults_of):
        """Run a case undisturbed, and then with each of the faults that are made of the bytes that it took."""
        carried = await self._run(case, None)
        async with asyncio.TaskGroup() as group:
            # A client of its own for each, not all of them at once.
            for fault in faults_of(carried):
                group.create_task(self._run(case, fault))


def spread(number, kinds=tuple(Kind)):
    """Return what makes so many faults in each direction, evenly spread, the kinds in turn."""

    def faults_of(carried):
        turn = 0
        for direction in Direction:
            for point in range(number):
                yield Fault(kinds[turn % len(kinds)], direction, carried[direction] * point // (number - 1))
                turn += 1

    return faults_of


def at_random(random, number):
    """Return what makes so many faults of all kinds at any byte."""

    def faults_of(carried):
        for _ in range(number):
            direction = random.choice(list(Direction))
            yield Fault(random.choice(list(Kind)), direction, random.randint(0, carried[direction]))

    return faults_of


@asynccontextmanager
async def runner(address):
    """Yield a runner, and see afterwards that nothing is left: no task, and no error that nobody heard."""
    unheard = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unheard.append(context))
    async with AsyncClient(address) as direct:
        found = Runner(address, direct)
        yield found
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        # Callbacks of what has ended.
        _, left = await asyncio.wait(left, timeout=2)
    assert not left
    assert not unheard
