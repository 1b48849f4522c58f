"""What a client does first, and loses while it connects: whoever connects is told at once, or has what it wants."""

from fila.errors import OutcomeUnknownError, UnavailableError


async def connect(scene):
    """There is a client, or an error."""
    scene.begin()
    try:
        client = await type(scene.client).connect(scene.client.addr)
        await client.close()
    except UnavailableError:
        assert not scene.goes_on

    async def answered():
        try:
            return await scene.client.list_queues()
        except UnavailableError:
            return False

    # It was lost once.
    await scene.until(answered)


async def first_enqueue(scene):
    """As any other: what may have been sent is in doubt, and in the queue at most once."""
    scene.begin()
    message_id = await scene.outcome(scene.client.enqueue(scene.queue, {"tenant": "acme"}, b"x" * 300))
    stored = [message.id for message in await scene.stored()]
    assert stored == [message_id] if message_id is not None else len(stored) <= 1


async def first_producer(scene):
    """Every receipt resolves; what has an id is there."""
    scene.begin()
    producer = scene.client.producer(scene.queue)
    receipts = [producer.send(b"%d" % number) for number in range(30)]
    ids = []
    for receipt in receipts:
        try:
            ids.append(await receipt)
        except (UnavailableError, OutcomeUnknownError):
            assert not scene.goes_on
    await producer.abort()
    assert set(ids) <= {message.id for message in await scene.stored()}


async def first_consumer(scene):
    """The message, or an error."""
    await scene.direct.enqueue(scene.queue, None, b"x")
    scene.begin()
    async with scene.client.consume(scene.queue) as consumer:
        try:
            message = await anext(consumer)
            assert message.payload == b"x"
        except UnavailableError:
            assert not scene.goes_on

    async def given_back():
        return await scene.numbers() == (1, 0)

    await scene.until(given_back)


CASES = (connect, first_enqueue, first_producer, first_consumer)
