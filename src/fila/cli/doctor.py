"""`fila doctor`: look at what a broker needs, and at the one that runs."""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fila.cli.connection import (
    EXIT_FAILED,
    EXIT_USAGE,
    Where,
    answers,
    broker_options,
    complain,
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
from fila.cli.server import with_host
from fila.errors import Absence, Code, ConfigError, FilaError

if TYPE_CHECKING:
    from fila.cli.findings import Finding
    from fila.config import Settings

# How long a broker may take to answer: it commits within milliseconds.
ANSWER_SECONDS = 5.0
# Where a broker that listens on all addresses is found.
LOOPBACK = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - read, not bound
# What a call ends with where no broker takes it: no answer, or one that is not fila's.
_FOREIGN = {Code.DEADLINE_EXCEEDED, Code.UNIMPLEMENTED, Code.UNKNOWN, Code.INTERNAL}
MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red")}


@click.command()
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    help="The settings file of the broker.  [default: as `fila server`]",
)
@click.option("--data-dir", metavar="PATH", help="The data directory to try.  [default: as `fila server`]")
@click.option(
    "--listen", metavar="HOST:PORT", callback=with_host, help="The port to try.  [default: as `fila server`]"
)
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
        complain(f"Error: {error.message}")
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
        port = replace(_holder(settings.server.listen_addr, where, broker), values=port.values)
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

    place = {"addr": where.addr}
    try:
        answer = _ask(where)
    except FilaError as error:
        if _absent(where, error):
            # Nothing is wrong with a machine where no broker was started yet.
            mark = Mark.FAIL if asked else Mark.WARN
            return Finding(
                "broker", mark, f"none answers at {where.addr}: start one with `fila server`", place
            )
        if error.code in _FOREIGN or getattr(error, "absence", None) is Absence.NO_BROKER:
            sentence = (
                f"something listens at {where.addr} and does not speak fila's protocol: another program, or a broker "
                "that hangs. Stop it, or say with --addr where the broker is"
            )
            return Finding("broker", Mark.FAIL, sentence, place)
        return Finding("broker", Mark.FAIL, f"at {where.addr}: {error.message}", place)
    return Finding("broker", Mark.OK, f"answers at {where.addr}: {answer.sentence()}", place | asdict(answer))


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


@dataclass(frozen=True, slots=True)
class Answer:
    """What a broker has to do, and how quick it is."""

    queues: int
    waiting: int
    call_seconds: float

    def sentence(self) -> str:
        """Say it."""
        queues, waiting = count_of(self.queues, "queue"), count_of(self.waiting, "message")
        return f"{queues}, {waiting} waiting, a call takes {duration(self.call_seconds)}"


def _ask(where: Where) -> Answer:
    """Ask a broker how it is. Raises FilaError."""
    import asyncio

    os.environ.setdefault("GRPC_VERBOSITY", "NONE")

    async def ask() -> Answer:
        async with make_client(where, timeout_seconds=ANSWER_SECONDS) as client:
            # The first call also connects.
            queues = await client.list_queues()
            begun = time.perf_counter()
            await client.list_queues()
            seconds = time.perf_counter() - begun
            return Answer(len(queues), sum(info.depth for info in queues), seconds)

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
