"""The gRPC server: one port for the contract, health checking and reflection."""

import grpc
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from fila import limits
from fila.broker.loop import Broker
from fila.errors import ConfigError
from fila.server.health import SERVICE_NAME as HEALTH_NAME
from fila.server.health import Health
from fila.server.listening import why_not
from fila.server.services import SERVICES, service_handlers
from fila.server.streams import Streams
from fila.wire.channel import SERVER_OPTIONS

# The same messages under a second name: newer tools ask for it first.
_REFLECTION_V1 = "grpc.reflection.v1.ServerReflection"


class GrpcServer:
    """Serves a broker on one address. Must be made on the running loop."""

    def __init__(
        self,
        broker: Broker,
        *,
        window_default: int = limits.CONSUMER_WINDOW_DEFAULT,
        quantum_default: int = limits.QUANTUM_DEFAULT,
    ) -> None:
        self._streams = Streams()
        self._health = Health([service.full_name for service in SERVICES])
        self._server = grpc.aio.server(options=SERVER_OPTIONS, maximum_concurrent_rpcs=limits.CALLS_MAX)
        handlers = service_handlers(
            broker, self._streams, window_default=window_default, quantum_default=quantum_default
        )
        self._server.add_generic_rpc_handlers(tuple(handlers))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._add_reflection()

    def bind(self, address: str) -> str:
        """Take the port, and return the address with it. Raises ConfigError where that cannot be.

        Whoever connects already waits until `start`.
        """
        try:
            bound = self._server.add_insecure_port(address)
        except RuntimeError:
            bound = 0
        if not bound:
            raise ConfigError(f"cannot listen on {address}: {why_not(address)}")
        return f"{address.rpartition(':')[0]}:{bound}"

    async def start(self) -> None:
        """Serve."""
        await self._server.start()

    async def give_back(self) -> None:
        """Leave the port without having served."""
        self._streams.stop()
        # gRPC closes the port of a server that has started, and of no other.
        await self._server.start()
        await self._server.stop(None)

    async def stop(self, timeout_ms: int = limits.DRAIN_TIMEOUT_MS) -> None:
        """Take no more calls, let the open ones end in their own way, and cut after a time those that do not."""
        self._health.stop()
        self._streams.stop()
        await self._server.stop(timeout_ms / 1000)

    def _add_reflection(self) -> None:
        names = (
            *[service.full_name for service in SERVICES],
            HEALTH_NAME,
            reflection.SERVICE_NAME,
        )
        reflection.enable_server_reflection(names, self._server)
        servicer = reflection.aio.ReflectionServicer(names)
        handler = grpc.stream_stream_rpc_method_handler(
            servicer.ServerReflectionInfo,
            request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
            response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(_REFLECTION_V1, {"ServerReflectionInfo": handler}),)
        )
