"""The standard health check: serving until the server stops.

Not the servicer that comes with gRPC: its Watch never ends, and would hold up every stop until calls are cut.
"""

import asyncio
from collections.abc import Collection
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

SERVICE_NAME = "grpc.health.v1.Health"

_Response = health_pb2.HealthCheckResponse


class Health(health_pb2_grpc.HealthServicer):
    """Answers for the server as a whole, under the empty name, and for each of its services."""

    def __init__(self, services: Collection[str]) -> None:
        self._names = {"", *services}
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Say from now on that nothing is served."""
        self._stopping.set()

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: Any
    ) -> health_pb2.HealthCheckResponse:
        """Return the state of a service."""
        if request.service not in self._names:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no service of that name")
        return _Response(status=self._status())

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:
        """Write the state of a service, and again when the server stops; then end."""
        if request.service not in self._names:
            await context.write(_Response(status=_Response.SERVICE_UNKNOWN))
            await self._stopping.wait()
            return
        if not self._stopping.is_set():
            await context.write(_Response(status=_Response.SERVING))
        await self._stopping.wait()
        await context.write(_Response(status=_Response.NOT_SERVING))

    def _status(self) -> Any:
        return _Response.NOT_SERVING if self._stopping.is_set() else _Response.SERVING
