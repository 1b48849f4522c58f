"""What the demo found: the last frame in, a table or JSON out, and what to try next."""

from pathlib import Path
from textwrap import wrap
from typing import Any

from fila.demo.live import INKS, introduction
from fila.demo.plan import FAIR, FIFO, NOISY, QUIET, Discipline
from fila.demo.tally import Frame, Tenant
from fila.demo.text import Canvas, Ink, Line, duration, length_bar, plain

BAR_WIDTH_MAX = 30
# A shorter bar tells nothing.
BAR_WIDTH_MIN = 6
# On less the table would wrap with it.
UNIT_WIDTH_MIN = 46
TUTORIAL = "docs/tutorial.md"
# Where this package is, if it was not installed from a wheel.
CHECKOUT = Path(__file__).resolve().parents[3]


def lines_of(frame: Frame, canvas: Canvas, program: str) -> list[Line]:
    """Return the result as it stays on the screen. Commands are never cut: they are there to be copied."""
    return [
        *(plain(line) for line in wrap(introduction(frame, measured_rate_per_s(frame)), canvas.width)),
        plain(),
        *_table(frame, canvas),
        plain(),
        *_findings(frame, canvas),
        plain(),
        *_next_steps(program),
    ]


def measured_rate_per_s(frame: Frame) -> float:
    """Return how fast a queue was really worked off: a busy machine is slower than planned."""
    delivered = sum(tenant.delivered for run in frame.runs for tenant in run.tenants)
    return delivered / len(frame.runs) / frame.elapsed_seconds


def as_json(frame: Frame) -> dict[str, Any]:
    """Return the measurements."""
    return {
        "seconds": round(frame.elapsed_seconds, 3),
        "rate_per_s": round(measured_rate_per_s(frame), 1),
        **{
            run.discipline.short_title: {
                tenant.name: {
                    "messages": tenant.delivered,
                    "median_wait_ms": round(tenant.median_wait_ms, 1),
                    "longest_wait_ms": round(tenant.longest_wait_ms, 1),
                }
                for tenant in run.tenants
            }
            for run in frame.runs
        },
    }


def _table(frame: Frame, canvas: Canvas) -> list[Line]:
    tenants = [tenant for run in frame.runs for tenant in run.tenants]
    names = max(len(tenant.name) for tenant in tenants)
    counts = max(len(f"{tenant.delivered:,}") for tenant in tenants)
    largest_ms = max(tenant.longest_wait_ms for tenant in tenants)
    unit = " messages" if canvas.width >= UNIT_WIDTH_MIN else ""
    before = 2 + names + 2 + counts + len(unit)
    bar_width = min(BAR_WIDTH_MAX, canvas.width - before - 24)
    lines: list[Line] = [((f"{'':{before}}{'median wait':>13}{'longest':>9}", Ink.FAINT),)]
    for run in frame.runs:
        lines.append(((run.discipline.title, Ink.TITLE),))
        for tenant in run.tenants:
            ink = INKS[tenant.name]
            bar: Line = ()
            if bar_width >= BAR_WIDTH_MIN:
                bar = length_bar(tenant.longest_wait_ms, largest_ms, bar_width, ink, canvas)
            lines.append(
                (
                    (f"  {tenant.name:<{names}}", ink),
                    (f"  {tenant.delivered:>{counts},}{unit}", Ink.PLAIN),
                    (f"{duration(tenant.median_wait_ms):>13}", Ink.PLAIN),
                    (f"{duration(tenant.longest_wait_ms):>9}  ", Ink.PLAIN),
                    *bar,
                )
            )
    return lines


def _findings(frame: Frame, canvas: Canvas) -> list[Line]:
    waits = {
        (discipline, name): duration(tenant_of(frame, discipline, name).median_wait_ms)
        for discipline in (FIFO, FAIR)
        for name in (QUIET, NOISY)
    }
    sentences = {
        f"{QUIET} waited {waits[FIFO, QUIET]} (median) behind {NOISY}'s flood in FIFO; "
        f"{waits[FAIR, QUIET]} with fila.": Ink.TITLE,
        f"{NOISY}'s own messages waited {waits[FIFO, NOISY]} there, and {waits[FAIR, NOISY]} with fila.": Ink.PLAIN,
    }
    return [((line, ink),) for sentence, ink in sentences.items() for line in wrap(sentence, canvas.width)]


def tenant_of(frame: Frame, discipline: Discipline, name: str) -> Tenant:
    """Return one tenant of one queue."""
    return next(
        tenant
        for run in frame.runs
        if run.discipline is discipline
        for tenant in run.tenants
        if tenant.name == name
    )


def _next_steps(program: str) -> list[Line]:
    return [
        (("Try next:", Ink.TITLE),),
        plain(f"  {program} server"),
        (("and in a second terminal:", Ink.TITLE),),
        plain(f"  {program} queue create orders"),
        plain(f'  {program} enqueue orders "hello" --key {NOISY}'),
        plain(f"  {program} consume orders --ack"),
        plain(_read_on(program)),
    ]


def _read_on(program: str) -> str:
    """Name what there is to read: who has installed a wheel has no documents."""
    if (CHECKOUT / TUTORIAL).is_file():
        return f"The tutorial: {TUTORIAL}"
    return f"More: {program} help"
