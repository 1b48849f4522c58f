"""One call or stream, one fault: what is set up before, and what is asked afterwards."""

import asyncio
from contextlib import asynccontextmanager
from itertools import count

from tests.integration.proxy import Kind, proxy_to

from fila import AsyncClient
from fila.errors import OutcomeUnknownError, UnavailableError

# Far more than anything here takes: who is not back by then hangs.
HANG_SECONDS = 25
CALL_SECONDS = 10.0

_numbers = count()


class Scene:
    """A client behind a proxy, another that nothing happens to, and a queue of their own."""

    def __init__(self, client, direct, proxy, fault):
        self.client = client
        self.direct = direct
        self.queue = f"queue-{next(_numbers)}"
        self._proxy = proxy
        self._fault = fault

    def begin(self):
        """From here on bytes count."""
        self._proxy.arm(self._fault)

    @property
    def goes_on(self):
        """Whether the connection is never lost: then nothing may fail."""
        return self._fault is None or self._fault.kind is Kind.DELAY

    async def outcome(self, call):
        """Return what a call that may not be repeated returned, or None if its connection was lost."""
        try:
            return await call
        except (UnavailableError, OutcomeUnknownError) as error:
            lost = error
        assert not self.goes_on, f"nothing was lost: {lost!r}"
        # What is in doubt says so.
        assert lost.not_done or type(lost) is OutcomeUnknownError, repr(lost)
        return None

    async def stored(self):
        """Take all that is in the queue, what waits for its next attempt included, and return it in its order."""
        messages = []
        while (await self.numbers())[0]:
            messages += await self.direct.lease(self.queue, 1000, wait_seconds=0.1)
        return sorted(messages, key=lambda message: message.offset)

    async def numbers(self):
        """Return how many messages wait, and how many are leased."""
        stats = await self.direct.stats(self.queue)
        return stats.depth + stats.delayed, stats.in_flight

    async def until(self, condition):
        """Wait for something that the broker does in its own time."""
        while not await condition():  # noqa: ASYNC110 - nobody tells a client what the broker does
            await asyncio.sleep(0.005)


@asynccontextmanager
async def scene(address, direct, fault, *, connected):
    """Set up for one fault; unless it is the connecting that fails, the client has been answered before."""
    async with proxy_to(address) as proxy, AsyncClient(proxy.address, timeout_seconds=CALL_SECONDS) as client:
        if connected:
            await client.list_queues()
        yield Scene(client, direct, proxy, fault), proxy
