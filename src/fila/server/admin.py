"""FilaAdmin: queues are created, deleted, purged, listed and looked at."""

from fila.broker.loop import Broker
from fila.core.commands import (
    CreateQueue,
    DeleteQueue,
    GetConfig,
    GetStats,
    ListConfig,
    ListQueues,
    PurgeQueue,
    SetConfig,
)
from fila.core.model import Discipline, QueueSpec, QueueStats
from fila.errors import InvalidArgumentError, LimitError, UnimplementedError
from fila.limits import FRAME_BYTES_MAX, VISIBILITY_TIMEOUT_MS_DEFAULT
from fila.server.call import checked_queue
from fila.wire.v1.admin_pb2 import (
    ConfigEntry,
    CreateQueueRequest,
    CreateQueueResponse,
    DeleteQueueRequest,
    DeleteQueueResponse,
    GetConfigRequest,
    GetConfigResponse,
    GetStatsRequest,
    GetStatsResponse,
    ListConfigRequest,
    ListConfigResponse,
    ListQueuesRequest,
    ListQueuesResponse,
    PerFairnessKeyStats,
    PerThrottleKeyStats,
    PurgeQueueRequest,
    PurgeQueueResponse,
    QueueConfig,
    QueueInfo,
    SetConfigRequest,
    SetConfigResponse,
)


class Admin:
    """Answers the administration of queues."""

    def __init__(self, broker: Broker, *, quantum_default: int) -> None:
        self._broker = broker
        self._quantum_default = quantum_default

    async def create_queue(self, request: CreateQueueRequest) -> bytes:
        """Create a queue, and answer when it is durable."""
        spec = self._read_spec(request.name, request.config)
        await self._broker.ask(lambda number: CreateQueue(number, spec))
        # Clients hand this back wherever a queue is asked for: so it is the name.
        return CreateQueueResponse(queue_id=spec.name).SerializeToString()

    async def delete_queue(self, request: DeleteQueueRequest) -> bytes:
        """Delete a queue with all its messages."""
        queue = checked_queue(request.queue)
        await self._broker.ask(lambda number: DeleteQueue(number, queue))
        return DeleteQueueResponse().SerializeToString()

    async def purge_queue(self, request: PurgeQueueRequest) -> bytes:
        """Remove what waits in a queue."""
        queue = checked_queue(request.queue)
        purged: int = await self._broker.ask(lambda number: PurgeQueue(number, queue))
        return PurgeQueueResponse(purged=purged).SerializeToString()

    async def list_queues(self, _request: ListQueuesRequest) -> bytes:
        """List all queues by name. Raises LimitError where the list is larger than a frame: it has no pages."""
        queues: tuple[QueueStats, ...] = await self._broker.ask(ListQueues)
        frame = ListQueuesResponse(
            queues=[
                QueueInfo(
                    name=stats.spec.name,
                    depth=stats.depth,
                    in_flight=stats.in_flight,
                    active_consumers=stats.consumers,
                )
                for stats in queues
            ],
            cluster_node_count=1,
        ).SerializeToString()
        if len(frame) > FRAME_BYTES_MAX:
            raise LimitError(
                f"the list of {len(queues):,} queues takes {len(frame):,} bytes, more than the {FRAME_BYTES_MAX:,} of a frame: "
                "ask for each queue's numbers by its name, or give queues shorter names"
            )
        return frame

    async def get_stats(self, request: GetStatsRequest) -> bytes:
        """Return a queue at a glance."""
        queue = checked_queue(request.queue)
        stats: QueueStats = await self._broker.ask(lambda number: GetStats(number, queue))
        return GetStatsResponse(
            depth=stats.depth,
            in_flight=stats.in_flight,
            active_fairness_keys=stats.active_keys,
            active_consumers=stats.consumers,
            quantum=stats.spec.quantum,
            per_key_stats=[
                PerFairnessKeyStats(
                    key=key.key, pending_count=key.pending, current_deficit=key.deficit, weight=key.weight
                )
                for key in stats.keys
            ],
            per_throttle_stats=[
                PerThrottleKeyStats(
                    key=gate.name, tokens=gate.tokens, rate_per_second=gate.rate, burst=gate.burst
                )
                for gate in stats.gates
                if gate.kind == "throttle"
            ],
            replication_count=1,
            discipline=stats.spec.discipline.value,
            visibility_timeout_ms=stats.spec.visibility_timeout_ms,
            next_offset=stats.next_offset,
            delayed=stats.delayed,
            queue_number=stats.number,
        ).SerializeToString()

    async def set_config(self, request: SetConfigRequest) -> bytes:
        """Give a key of the runtime configuration a value, and answer when it is durable."""
        await self._broker.ask(lambda number: SetConfig(number, request.key, request.value))
        return SetConfigResponse().SerializeToString()

    async def get_config(self, request: GetConfigRequest) -> bytes:
        """Return the value of a key of the runtime configuration."""
        value: str = await self._broker.ask(lambda number: GetConfig(number, request.key))
        return GetConfigResponse(value=value).SerializeToString()

    async def list_config(self, request: ListConfigRequest) -> bytes:
        """List the runtime configuration. Raises LimitError where the list is larger than a frame: it has no pages."""
        entries: tuple[tuple[str, str], ...] = await self._broker.ask(
            lambda number: ListConfig(number, request.prefix)
        )
        frame = ListConfigResponse(
            entries=[ConfigEntry(key=key, value=value) for key, value in entries], total_count=len(entries)
        ).SerializeToString()
        if len(frame) > FRAME_BYTES_MAX:
            raise LimitError(
                f"the list of {len(entries):,} entries takes {len(frame):,} bytes, more than the {FRAME_BYTES_MAX:,} of a frame: "
                "ask for those with a longer prefix"
            )
        return frame

    def _read_spec(self, name: str, config: QueueConfig) -> QueueSpec:
        for script in ("on_enqueue_script", "on_failure_script"):
            if getattr(config, script):
                raise UnimplementedError(f"this broker runs no hooks: create the queue without {script}")
        try:
            discipline = Discipline(config.discipline or Discipline.DRR)
        except ValueError:
            known = ", ".join(Discipline)
            raise InvalidArgumentError(f"discipline {config.discipline[:64]!r} is none of {known}") from None
        return QueueSpec(
            name=name,
            discipline=discipline,
            quantum=config.quantum or self._quantum_default,
            visibility_timeout_ms=config.visibility_timeout_ms or VISIBILITY_TIMEOUT_MS_DEFAULT,
        )
