"""`fila doctor`: look at what a broker needs, and at the one that runs."""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fila.cli.connection import (
    EXIT_FAILED,
    EXIT_USAGE,
    Where,
    answers,
    broker_options,
    host_and_port,
    json_option,
    make_client,
)
from fila.cli.output import (
    COLUMN_WIDTH_MIN,
    count_of,
    duration,
    print_json,
    printable,
    terminal_width,
    wants_json,
)
from fila.errors import Code, ConfigError, FilaError

if TYPE_CHECKING:
    from fila.cli.findings import Finding
    from fila.config import Settings

# How long a broker may take to answer: it commits within milliseconds.
ANSWER_SECONDS = 5.0
# Where a broker that listens on all addresses is found.
LOOPBACK = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - read, not bound
MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red")}


@click.command()
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    help="The settings file of the broker.  [default: as `fila server`]",
)
@click.option("--data-dir", metavar="PATH", help="The data directory to try.  [default: as `fila server`]")
@click.option("--listen", metavar="HOST:PORT", help="The port to try.  [default: as `fila server`]")
@broker_options
@json_option
def doctor(
    *, config_path: Path | None, data_dir: str | None, listen: str | None, where: Where, as_json: bool
) -> None:
    """Check what a broker needs on this machine, and whether one can be reached.

    Looks at versions, open files, data directory, file system, free space, the time of an fsync, the port, and the
    broker at --addr. Changes nothing. Ends with 1 if something fails; a warning is no failure, nor is a broker
    that is not running while its port is free.

    \b
    Example:
      fila doctor
      fila doctor --data-dir /var/lib/fila --json
    """  # noqa: D301
    from fila import config

    try:
        settings = config.load(
            config_path=config_path,
            environment=os.environ,
            overrides={"storage.data_dir": data_dir, "server.listen_addr": listen},
        )
    except ConfigError as error:
        click.echo(f"fila doctor: {error.message}", err=True)
        sys.exit(EXIT_USAGE)
    findings = examine(settings, where)
    if wants_json(asked=as_json):
        failed = any(finding.mark == "fail" for finding in findings)
        print_json({"ok": not failed, "checks": [asdict(finding) for finding in findings]})
    else:
        for line in report(findings, terminal_width() or 80):
            click.echo(line)
    if any(finding.mark == "fail" for finding in findings):
        sys.exit(EXIT_FAILED)


def examine(settings: "Settings", where: Where) -> "list[Finding]":
    """Make all checks, in the order of the report."""
    from fila.cli import findings

    port, taken = findings.port(settings.server.listen_addr)
    broker = _broker(where, asked=_asked())
    if taken:
        port = _holder(settings.server.listen_addr, where, broker)
    return [
        *findings.versions(),
        findings.open_files(),
        *findings.disk(settings.storage.data_dir),
        port,
        broker,
    ]


def _asked() -> bool:
    """Return whether an address was given: then it is a failure if nobody is there."""
    source = click.get_current_context().get_parameter_source("addr")
    return source is not click.core.ParameterSource.DEFAULT


def _broker(where: Where, *, asked: bool) -> "Finding":
    from fila.cli.findings import Finding, Mark

    try:
        return Finding("broker", Mark.OK, f"answers at {where.addr}: {_ask(where)}")
    except FilaError as error:
        if _absent(where, error):
            # Nothing is wrong with a machine where no broker was started yet.
            mark = Mark.FAIL if asked else Mark.WARN
            return Finding("broker", mark, f"none answers at {where.addr}: start one with `fila server`")
        return Finding("broker", Mark.FAIL, f"at {where.addr}: {error.message}")


def _absent(where: Where, error: FilaError) -> bool:
    return error.code is Code.UNAVAILABLE and not answers(where.addr)


def _holder(listen_addr: str, where: Where, broker: "Finding") -> "Finding":
    """Say who has the port that a broker would listen on."""
    from fila.cli import findings
    from fila.cli.findings import Finding, Mark

    host, _, port = listen_addr.rpartition(":")
    who = findings.listener(int(port))
    try:
        if broker.mark is not Mark.OK or host_and_port(where.addr)[1] != int(port):
            _ask(Where(f"{LOOPBACK.get(host, host)}:{port}"))
    except FilaError:
        name = f"another program{who}"
        return Finding("port", Mark.FAIL, f"{listen_addr} is in use by {name}: stop it, or set --listen")
    return Finding("port", Mark.OK, f"{listen_addr} is in use by a fila broker{who}")


def _ask(where: Where) -> str:
    """Ask a broker how it is. Raises FilaError."""
    import asyncio

    os.environ.setdefault("GRPC_VERBOSITY", "NONE")

    async def ask() -> str:
        async with make_client(where, timeout_seconds=ANSWER_SECONDS) as client:
            # The first call also connects.
            queues = await client.list_queues()
            begun = time.perf_counter()
            await client.list_queues()
            seconds = time.perf_counter() - begun
            waiting = sum(info.depth for info in queues)
            return f"{count_of(len(queues), 'queue')}, {count_of(waiting, 'message')} waiting, a call takes {duration(seconds)}"

    return asyncio.run(ask())


def report(findings: "Sequence[Finding]", width: int) -> list[str]:
    """Return the lines of the report for people."""
    import textwrap

    widest = max(len(finding.check) for finding in findings)
    indent = " " * (widest + 4)
    lines = []
    for finding in findings:
        sign, colour = MARKS[finding.mark]
        head = f"{click.style(sign, fg=colour, bold=True)} {click.style(finding.check.ljust(widest), bold=True)}  "
        room = max(COLUMN_WIDTH_MIN, width - len(indent))
        first, *rest = textwrap.wrap(printable(finding.detail), room, break_on_hyphens=False)
        lines += [head + first, *(indent + line for line in rest)]
    return [*lines, "", _summary(findings)]


def _summary(findings: "Sequence[Finding]") -> str:
    marks = [str(finding.mark) for finding in findings]
    failures, warnings = marks.count("fail"), marks.count("warn")
    if failures:
        verb = "fails" if failures == 1 else "fail"
        return click.style(
            f"{count_of(failures, 'check')} {verb}, {count_of(warnings, 'warning')}.", fg="red"
        )
    if warnings:
        return click.style(f"Nothing fails, {count_of(warnings, 'warning')}.", fg="yellow")
    return click.style("All is well.", fg="green")
