"""`fila bench`: measure a broker with named workloads."""

import os
import sys
from pathlib import Path

import click

from fila.cli.connection import fail
from fila.cli.group import EXIT_INTERRUPTED
from fila.errors import FilaError

ALL = "all"


@click.command()
@click.argument("workload")
@click.option(
    "--addr",
    metavar="HOST:PORT",
    help="A running broker, whatever FILA_ADDR says.  [default: start one, and remove it afterwards]",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Where a broker that is started keeps its data: the disk to measure.  [default: the temporary directory]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on a line instead of a table.")
@click.option("--messages", type=click.IntRange(min=1), metavar="N", help="How many messages, or queues.")
@click.option(
    "--seconds", type=click.FloatRange(min=0.1), metavar="S", help="How long, where time ends the load."
)
@click.option(
    "--payload-bytes", type=click.IntRange(min=0, max=4_000_000), metavar="N", help="Random bytes in each."
)
@click.option("--keys", type=click.IntRange(min=1), metavar="N", help="How many fairness keys.")
@click.option("--batch", type=click.IntRange(min=1, max=10_000), metavar="N", help="Messages in a batch.")
@click.option(
    "--repeat", type=click.IntRange(min=1), metavar="N", help="How many turns broker and bare server take."
)
@click.option("--quick", is_flag=True, help="Small sizes, to see that it works: the figures mean nothing.")
@click.option(
    "--prepared", is_flag=True, help="Send batches that were made before, which no client could have."
)
def bench(
    workload: str,
    *,
    addr: str | None,
    data_dir: Path | None,
    as_json: bool,
    messages: int | None,
    seconds: float | None,
    payload_bytes: int | None,
    keys: int | None,
    batch: int | None,
    repeat: int | None,
    quick: bool,
    prepared: bool,
) -> None:
    """Measure produce, consume, both, unary, latency, keys, queues, fairness, backlog, client, or all of them in turn.

    What the broker does is compared with a bare gRPC server in the same run: absolute times mean little on shared
    machines, ratios and processor time per message do.

    \b
    Example:
      fila bench both
      fila bench produce --json --seconds 10
      fila bench consume --addr localhost:5555
    """  # noqa: D301
    # Said before gRPC is loaded: it reports servers that stop, which all servers here do.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from fila.bench.workloads import WORKLOADS, Choices, run_workload

    if workload not in {ALL, *WORKLOADS}:
        names = ", ".join(WORKLOADS)
        raise click.UsageError(
            f"There is no workload {workload!r}: there are {names}, and {ALL} for all of them."
        )
    choices = Choices(
        addr=addr,
        data_dir=None if data_dir is None else data_dir.resolve(),
        messages=messages,
        seconds=seconds,
        payload_bytes=payload_bytes,
        keys=keys,
        batch=batch,
        repeat=repeat,
        quick=quick,
        prepared=prepared,
    )
    try:
        for name in WORKLOADS if workload == ALL else (workload,):
            report = run_workload(name, choices)
            click.echo(report.as_json() if as_json else report.as_table())
            sys.stdout.flush()
    except FilaError as error:
        fail(addr or "127.0.0.1", error)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
