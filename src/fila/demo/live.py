"""What the terminal shows while the demo runs: a frame in, lines out. Never taller or wider than the canvas."""

from textwrap import wrap

from fila.demo.plan import FIFO, NOISY, QUIET
from fila.demo.tally import Frame, Run, Tenant
from fila.demo.text import (
    ASCII_FULL,
    ASCII_SHADE,
    FULL,
    SHADE,
    Canvas,
    Ink,
    Line,
    columns,
    cut,
    duration,
    plain,
    progress_bar,
)

# Below this, two bars with their counts do not fit side by side.
SIDE_BY_SIDE_WIDTH = 76
GAP = 4
BAR_WIDTH_MAX = 40
# A wait that somebody notices.
LONG_WAIT_MS = 1000.0
INKS = {NOISY: Ink.NOISY, QUIET: Ink.QUIET}


def lines_of(frame: Frame, canvas: Canvas) -> list[Line]:
    """Return the fullest view that fits."""
    body = _side_by_side(frame, canvas) if canvas.width >= SIDE_BY_SIDE_WIDTH else _stacked(frame, canvas)
    head, foot = _head(frame, canvas), _foot(frame, canvas)
    views = [
        [*head, plain(), *body, plain(), foot],
        [*body, foot],
        [*_tight(frame, canvas), foot],
        _tight(frame, canvas),
    ]
    # The cursor stands in the row below.
    rows = max(1, canvas.height - 1)
    view = next((view for view in views if len(view) <= rows), views[-1][-rows:])
    return [cut(line, canvas.width) for line in view]


def introduction(frame: Frame, rate_per_s: float) -> str:
    """Say what happens to both queues, and how fast they are worked off."""
    noisy, quiet = (next(each for each in frame.runs[0].tenants if each.name == name) for name in INKS)
    return (
        f"Two queues of one broker, the same work: {noisy.name} sends {noisy.planned:,} messages at once, "
        f"then {quiet.name} sends {quiet.planned:,}, one by one. "
        f"Each queue is worked off at {rate_per_s:.0f} messages a second."
    )


def _head(frame: Frame, canvas: Canvas) -> list[Line]:
    return [plain(line) for line in wrap(introduction(frame, frame.rate_per_s), canvas.width)]


def _foot(frame: Frame, canvas: Canvas) -> Line:
    full, shade = (FULL, SHADE) if canvas.blocks else (ASCII_FULL, ASCII_SHADE)
    elapsed = f"{frame.elapsed_seconds:4.1f} s of about {frame.planned_seconds:.0f} s"
    return ((f"{elapsed}    {full} delivered  {shade} waiting", Ink.FAINT),)


def _side_by_side(frame: Frame, canvas: Canvas) -> list[Line]:
    width = (min(canvas.width, 2 * _panel_width(frame, BAR_WIDTH_MAX) + GAP) - GAP) // 2
    left, right = (_panel(run, frame, width, canvas) for run in frame.runs)
    return columns(left, right, width + GAP)


def _stacked(frame: Frame, canvas: Canvas) -> list[Line]:
    first, second = (_panel(run, frame, canvas.width, canvas) for run in frame.runs)
    return [*first, plain(), *second]


def _panel(run: Run, frame: Frame, width: int, canvas: Canvas) -> list[Line]:
    lines: list[Line] = [((run.discipline.title, Ink.TITLE),)]
    names = _names_width(frame)
    bar_width = max(1, min(BAR_WIDTH_MAX, width - _panel_width(frame, 0)))
    for tenant in run.tenants:
        ink = INKS[tenant.name]
        bar = progress_bar(
            tenant.delivered, tenant.sent - tenant.delivered, tenant.planned, bar_width, ink, canvas
        )
        count = f" {_count(tenant):>{_counts_width(frame)}}"
        lines.append(((f"{tenant.name:<{names}} ", ink), *bar, (count, Ink.PLAIN)))
        lines.append(((" " * (names + 1), Ink.PLAIN), _wait(run, tenant)))
    return lines


def _tight(frame: Frame, canvas: Canvas) -> list[Line]:
    titles = max(len(run.discipline.short_title) for run in frame.runs)
    names = _names_width(frame)
    bar_width = max(1, min(BAR_WIDTH_MAX, canvas.width - titles - names - 12))
    return [
        (
            (f"{run.discipline.short_title:<{titles}} ", Ink.TITLE),
            (f"{tenant.name:<{names}} ", INKS[tenant.name]),
            *progress_bar(
                tenant.delivered,
                tenant.sent - tenant.delivered,
                tenant.planned,
                bar_width,
                INKS[tenant.name],
                canvas,
            ),
            (f" {duration(_longest_ms(tenant)):>7}", _wait(run, tenant)[1]),
        )
        for run in frame.runs
        for tenant in run.tenants
    ]


def _wait(run: Run, tenant: Tenant) -> tuple[str, Ink]:
    if not tenant.sent:
        return "nothing sent yet", Ink.FAINT
    longest_ms = _longest_ms(tenant)
    waits = tenant.waiting_ms is not None and tenant.waiting_ms >= tenant.longest_wait_ms
    text = f"waiting for {duration(longest_ms)}" if waits else f"waited {duration(longest_ms)} at most"
    if tenant.name != QUIET:
        return text, Ink.FAINT
    if longest_ms >= LONG_WAIT_MS:
        return text, Ink.BAD
    return text, Ink.PLAIN if run.discipline is FIFO else Ink.GOOD


def _longest_ms(tenant: Tenant) -> float:
    return max(tenant.longest_wait_ms, tenant.waiting_ms or 0.0)


def _count(tenant: Tenant) -> str:
    return f"{tenant.delivered:,}/{tenant.planned:,}"


def _names_width(frame: Frame) -> int:
    return max(len(tenant.name) for run in frame.runs for tenant in run.tenants)


def _counts_width(frame: Frame) -> int:
    return max(2 * len(f"{tenant.planned:,}") + 1 for run in frame.runs for tenant in run.tenants)


def _panel_width(frame: Frame, bar_width: int) -> int:
    return _names_width(frame) + 1 + bar_width + 1 + _counts_width(frame)
