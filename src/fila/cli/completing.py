"""What the shell is offered for an argument: the names of queues, if a broker answers quickly."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from fila.cli.connection import Where

# Nobody waits for a suggestion.
COMPLETE_SECONDS = 1.0


def complete_queue(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the queues whose names begin like this; none where no broker answers."""
    from fila.cli.connection import DEFAULT_ADDR, Where, answers
    from fila.errors import FilaError

    del parameter
    where = Where(context.params.get("addr") or DEFAULT_ADDR, context.params.get("ca_file"))
    # Asked before gRPC is loaded, which takes longer than all the rest.
    if not answers(where.addr):
        return []
    try:
        return [name for name in _names(where) if name.startswith(incomplete)]
    except (FilaError, TimeoutError):
        return []


def _names(where: "Where") -> list[str]:
    import asyncio
    import os

    from fila.cli.connection import make_client

    os.environ.setdefault("GRPC_VERBOSITY", "NONE")

    async def ask() -> list[str]:
        async with asyncio.timeout(COMPLETE_SECONDS), make_client(where) as client:
            return [info.name for info in await client.list_queues()]

    return asyncio.run(ask())
