"""Unary calls whose connection is lost, and what must hold then."""

from fila.client.values import NewMessage
from fila.errors import MessageNotFoundError, QueueNotFoundError


async def enqueue(scene):
    """Either there is an id, and the message once; or an error, and the message at most once."""
    scene.begin()
    message_id = await scene.outcome(scene.client.enqueue(scene.queue, {"tenant": "acme"}, b"x" * 300))
    stored = [message.id for message in await scene.stored()]
    assert stored == [message_id] if message_id is not None else len(stored) <= 1


async def enqueue_of_a_large_message(scene):
    """The same where it travels in many pieces."""
    payload = bytes(500_000)
    scene.begin()
    message_id = await scene.outcome(scene.client.enqueue(scene.queue, None, payload))
    stored = await scene.stored()
    assert [message.id for message in stored] == [message_id] if message_id is not None else len(stored) <= 1
    assert all(message.payload == payload for message in stored)


async def enqueue_batch(scene):
    """As for one message: all of it, or an error and at most one copy of each."""
    scene.begin()
    results = await scene.outcome(
        scene.client.enqueue_batch(scene.queue, [NewMessage(b"%d" % number) for number in range(20)])
    )
    stored = await scene.stored()
    if results is not None:
        assert [message.id for message in stored] == [result.id for result in results]
    payloads = [message.payload for message in stored]
    assert payloads in ([], [b"%d" % number for number in range(20)])


async def lease(scene):
    """What was leased for an answer that was lost is leased all the same; nothing is gone."""
    await scene.direct.enqueue(scene.queue, None, b"x")
    scene.begin()
    messages = await scene.outcome(scene.client.lease(scene.queue))
    waiting, leased = await scene.numbers()
    assert waiting + leased == 1
    if messages is not None:
        await messages[0].ack()
        assert await scene.numbers() == (0, 0)


async def lease_of_a_large_message(scene):
    """The same where the answer travels in many pieces."""
    payload = bytes(500_000)
    await scene.direct.enqueue(scene.queue, None, payload)
    scene.begin()
    messages = await scene.outcome(scene.client.lease(scene.queue))
    assert sum(await scene.numbers()) == 1
    assert messages is None or [message.payload for message in messages] == [payload]


async def _leased(scene):
    await scene.direct.enqueue(scene.queue, None, b"x")
    (message,) = await scene.client.lease(scene.queue)
    return message


async def ack_by_id(scene):
    """Acked, or an error and perhaps acked."""
    message = await _leased(scene)
    scene.begin()
    done = await scene.outcome(_true(scene.client.ack(scene.queue, message.id)))
    assert await scene.numbers() in ([(0, 0)] if done else [(0, 0), (0, 1)])


async def nack_by_id(scene):
    """Nacked once, or an error and perhaps nacked once."""
    message = await _leased(scene)
    scene.begin()
    done = await scene.outcome(_true(scene.client.nack(scene.queue, message.id, "boom")))
    waiting, leased = await scene.numbers()
    assert waiting + leased == 1
    if waiting:
        assert [each.attempt_count for each in await scene.stored()] == [1]
    assert waiting or not done


async def extend_by_id(scene):
    """It is safe to repeat, and succeeds in the end."""
    message = await _leased(scene)
    scene.begin()
    await scene.client.extend(scene.queue, message.id, 50)
    assert await scene.numbers() == (0, 1)


async def ack_of_a_lease(scene):
    """A lease is named by its epoch, so the ack is repeated and succeeds in the end."""
    message = await _leased(scene)
    scene.begin()
    await message.ack()
    assert await scene.numbers() == (0, 0)


async def nack_of_a_lease(scene):
    """Repeated; if the first was done and its answer lost, the second finds the lease ended. Nacked once."""
    message = await _leased(scene)
    scene.begin()
    try:
        await message.nack("boom")
    except MessageNotFoundError:
        assert not scene.goes_on
    assert [each.attempt_count for each in await scene.stored()] == [1]


async def release_of_a_lease(scene):
    """As a nack, without an attempt."""
    message = await _leased(scene)
    scene.begin()
    try:
        await message.release()
    except MessageNotFoundError:
        assert not scene.goes_on
    assert [each.attempt_count for each in await scene.stored()] == [0]


async def create_queue(scene):
    """There is a queue, or an error and perhaps a queue; never the error that there is one already."""
    name = f"{scene.queue}-new"
    scene.begin()
    done = await scene.outcome(_true(scene.client.create_queue(name, visibility_timeout_ms=5_000)))
    names = [info.name for info in await scene.direct.list_queues()]
    assert name in names or not done
    if name in names:
        assert (await scene.direct.stats(name)).visibility_timeout_ms == 5_000


async def delete_queue(scene):
    """There is no queue any more, or an error and perhaps none; never the error that there is none."""
    scene.begin()
    done = await scene.outcome(_true(scene.client.delete_queue(scene.queue)))
    try:
        await scene.direct.stats(scene.queue)
    except QueueNotFoundError:
        await scene.direct.create_queue(scene.queue)
    else:
        assert not done


async def purge_queue(scene):
    """All or nothing is deleted, and the number is true."""
    await scene.direct.enqueue_batch(scene.queue, [NewMessage(b"x")] * 5)
    scene.begin()
    purged = await scene.outcome(scene.client.purge_queue(scene.queue))
    assert purged in (5, None)
    assert await scene.numbers() in ([(0, 0)] if purged else [(0, 0), (5, 0)])


async def list_queues(scene):
    """It is safe to repeat, and succeeds in the end."""
    scene.begin()
    assert scene.queue in [info.name for info in await scene.client.list_queues()]


async def stats(scene):
    """It is safe to repeat, and succeeds in the end."""
    scene.begin()
    assert (await scene.client.stats(scene.queue)).depth == 0


async def _true(call):
    await call
    return True


CASES = (
    enqueue,
    enqueue_of_a_large_message,
    enqueue_batch,
    lease,
    lease_of_a_large_message,
    ack_by_id,
    nack_by_id,
    extend_by_id,
    ack_of_a_lease,
    nack_of_a_lease,
    release_of_a_lease,
    create_queue,
    delete_queue,
    purge_queue,
    list_queues,
    stats,
)
