"""What the demo shows: frames and results as text, at several widths, with and without block characters."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.demo_frames import END, MIDDLE

from fila.demo import live, result
from fila.demo.text import Canvas, Ink, characters, duration, length_bar, plain, progress_bar, width_of

WIDE = """\
Two queues of one broker, the same work: acme sends 2,400 messages at once, then bolt sends 10, one
by one. Each queue is worked off at 200 messages a second.

First in, first out (FIFO)                         fila: fair by tenant
acme ████████████████░░░░░░░░░░░░░░ 1,320/2,400    acme ████████████████░░░░░░░░░░░░░░ 1,314/2,400
     waiting for 6.6 s                                  waiting for 6.6 s
bolt ░░░░░░░░░░░░░░░░░░                    0/10    bolt ██████████████████                    6/10
     waiting for 5.6 s                                  waited 4 ms at most

 6.6 s of about 12 s    █ delivered  ░ waiting
"""
USUAL = """\
Two queues of one broker, the same work: acme sends 2,400 messages at once,
then bolt sends 10, one by one. Each queue is worked off at 200 messages a
second.

First in, first out (FIFO)               fila: fair by tenant
acme ███████████░░░░░░░░░ 1,320/2,400    acme ██████████░░░░░░░░░░ 1,314/2,400
     waiting for 6.6 s                        waiting for 6.6 s
bolt ░░░░░░░░░░░░                0/10    bolt ████████████                6/10
     waiting for 5.6 s                        waited 4 ms at most

 6.6 s of about 12 s    █ delivered  ░ waiting
"""
NARROW = """\
Two queues of one broker, the same work: acme sends 2,400
messages at once, then bolt sends 10, one by one. Each
queue is worked off at 200 messages a second.

First in, first out (FIFO)
acme ██████████████████████░░░░░░░░░░░░░░░░░░ 1,320/2,400
     waiting for 6.6 s
bolt ░░░░░░░░░░░░░░░░░░░░░░░░                        0/10
     waiting for 5.6 s

fila: fair by tenant
acme █████████████████████░░░░░░░░░░░░░░░░░░░ 1,314/2,400
     waiting for 6.6 s
bolt ████████████████████████                        6/10
     waited 4 ms at most

 6.6 s of about 12 s    █ delivered  ░ waiting
"""
LOW = """\
fifo acme █████████████████████░░░░░░░░░░░░░░░░░░   6.6 s
fifo bolt ░░░░░░░░░░░░░░░░░░░░░░░░                  5.6 s
fila acme █████████████████████░░░░░░░░░░░░░░░░░░   6.6 s
fila bolt ███████████████████████                    4 ms
 6.6 s of about 12 s    █ delivered  ░ waiting
"""
ASCII = """\
Two queues of one broker, the same work: acme sends 2,400 messages at once,
then bolt sends 10, one by one. Each queue is worked off at 200 messages a
second.

First in, first out (FIFO)               fila: fair by tenant
acme ###########--------- 1,320/2,400    acme ##########---------- 1,314/2,400
     waiting for 6.6 s                        waiting for 6.6 s
bolt ------------                0/10    bolt ############                6/10
     waiting for 5.6 s                        waited 4 ms at most

 6.6 s of about 12 s    # delivered  - waiting
"""
RESULT = """\
Two queues of one broker, the same work: acme sends 2,400 messages at once, then
bolt sends 10, one by one. Each queue is worked off at 199 messages a second.

                        median wait  longest
First in, first out (FIFO)
  acme  2,400 messages        6.0 s   12.0 s  █████████████████████████████▉
  bolt     10 messages        6.5 s   11.0 s  ███████████████████████████▍
fila: fair by tenant
  acme  2,400 messages        6.0 s   12.0 s  ██████████████████████████████
  bolt     10 messages         2 ms     5 ms  ▏

bolt waited 6.5 s (median) behind acme's flood in FIFO; 2 ms with fila.
acme's own messages waited 6.0 s there, and 6.0 s with fila.

Try next:
  fila server
and in a second terminal:
  fila queue create orders
  fila enqueue orders "hello" --key acme
  fila consume orders --ack
The tutorial: docs/tutorial.md
"""
RESULT_NARROW_ASCII = """\
Two queues of one broker, the same work:
acme sends 2,400 messages at once, then
bolt sends 10, one by one. Each queue is
worked off at 199 messages a second.

               median wait  longest
First in, first out (FIFO)
  acme  2,400        6.0 s   12.0 s
  bolt     10        6.5 s   11.0 s
fila: fair by tenant
  acme  2,400        6.0 s   12.0 s
  bolt     10         2 ms     5 ms

bolt waited 6.5 s (median) behind acme's
flood in FIFO; 2 ms with fila.
acme's own messages waited 6.0 s there,
and 6.0 s with fila.

Try next:
  fila server
and in a second terminal:
  fila queue create orders
  fila enqueue orders "hello" --key acme
  fila consume orders --ack
The tutorial: docs/tutorial.md
"""


def drawn(view, frame, width, height=24, *, colour=False, blocks=True):
    """Return what is written for a frame."""
    canvas = Canvas(width, height, colour, blocks)
    lines = view.lines_of(frame, canvas) if view is live else view.lines_of(frame, canvas, "fila")
    return "\n".join(characters(lines, canvas)) + "\n"


@pytest.mark.parametrize(
    ("width", "height", "blocks", "golden"),
    [
        pytest.param(99, 29, True, WIDE, id="wide"),
        pytest.param(79, 24, True, USUAL, id="usual"),
        pytest.param(59, 24, True, NARROW, id="narrow"),
        pytest.param(59, 12, True, LOW, id="low"),
        pytest.param(79, 24, False, ASCII, id="ascii"),
    ],
)
def test_frame_has_a_bar_and_a_wait_for_each_tenant_in_each_queue(width, height, blocks, golden):
    """Side by side where there is room, one above the other where there is not, and in one line each where it is low."""
    assert drawn(live, MIDDLE, width, height, blocks=blocks) == golden


@pytest.mark.parametrize(
    ("width", "blocks", "golden"),
    [
        pytest.param(80, True, RESULT, id="usual"),
        pytest.param(40, False, RESULT_NARROW_ASCII, id="narrow-ascii"),
    ],
)
def test_result_has_both_waits_of_each_tenant_and_what_to_try_next(width, blocks, golden):
    """The table, one sentence of what it means, and commands that are never cut."""
    assert drawn(result, END, width, blocks=blocks) == golden


@given(width=st.integers(1, 200), height=st.integers(1, 60), colour=st.booleans(), blocks=st.booleans())
def test_frame_never_leaves_the_canvas(width, height, colour, blocks):
    """A line that wraps, or a row too many, would spoil every frame after it."""
    canvas = Canvas(width, height, colour, blocks)

    for frame in (MIDDLE, END):
        lines = live.lines_of(frame, canvas)

        assert 1 <= len(lines) <= max(1, height - 1)
        assert max(map(width_of, lines)) <= width


def test_colour_changes_nothing_but_the_colour():
    """What is measured without ink is as wide with it, and every ink ends."""
    canvas = Canvas(79, 24, colour=True, blocks=True)
    inked = characters(live.lines_of(MIDDLE, canvas), canvas)
    plain = "\n".join(inked)
    for ink in Ink:
        plain = plain.replace(f"\x1b[{ink.value}m", "") if ink.value else plain

    assert plain.replace("\x1b[0m", "") == drawn(live, MIDDLE, 79).rstrip("\n")
    assert all(line.count("\x1b[") == 2 * line.count("\x1b[0m") for line in inked)
    assert any("\x1b[" in line for line in inked)


def test_only_the_long_wait_of_the_quiet_tenant_is_red():
    """Red says where to look."""
    canvas = Canvas(79, 24, colour=True, blocks=True)
    later = replace(
        MIDDLE,
        runs=tuple(
            replace(
                run,
                tenants=tuple(
                    replace(tenant, longest_wait_ms=4.0, waiting_ms=None) for tenant in run.tenants
                ),
            )
            for run in MIDDLE.runs
        ),
    )

    red = f"\x1b[{Ink.BAD.value}m"

    assert "\n".join(characters(live.lines_of(MIDDLE, canvas), canvas)).count(red) == 1
    assert red not in "\n".join(characters(live.lines_of(later, canvas), canvas))


def test_ascii_has_no_other_characters():
    """An encoding without blocks can take every character of the fallback."""
    for text in (drawn(live, MIDDLE, 79, blocks=False), drawn(result, END, 80, blocks=False)):
        assert text.isascii()


@given(whole=st.integers(1, 10_000), data=st.data(), width=st.integers(1, 60))
def test_progress_bar_shows_what_waits_and_promises_nothing(whole, data, width):
    """Full only when all is done; empty only when nothing is; waiting only where something waits."""
    done = data.draw(st.integers(0, whole))
    under_way = data.draw(st.integers(0, whole - done))
    canvas = Canvas(80, 24, colour=False, blocks=True)

    text = "".join(span for span, _ in progress_bar(done, under_way, whole, width, Ink.PLAIN, canvas))

    assert len(text) == width
    assert (text == "█" * width) == (done == whole)
    assert ("░" in text) == (under_way > 0)
    assert text.rstrip() == text.replace(" ", "")


def test_length_bar_is_proportional_and_never_nothing_for_something():
    """Eighths of a column; a wait of some milliseconds is a sliver beside seconds."""
    canvas = Canvas(80, 24, colour=False, blocks=True)

    def bar(value):
        return "".join(span for span, _ in length_bar(value, 100.0, 10, Ink.PLAIN, canvas))

    assert [bar(value) for value in (0.0, 0.01, 50.0, 55.0, 100.0)] == [
        "",
        "▏",
        "█████",
        "█████▌",
        "██████████",
    ]


def test_durations_are_as_people_say_them():
    """Milliseconds below a second, tenths of seconds above."""
    assert [duration(value) for value in (0.2, 4, 999.4, 999.6, 6120)] == [
        "0 ms",
        "4 ms",
        "999 ms",
        "1.0 s",
        "6.1 s",
    ]


def test_json_has_the_measurements_by_queue_and_tenant():
    """For programs: the same numbers, not rounded to what is shown."""
    found = result.as_json(END)

    assert found["fifo"]["bolt"] == {"messages": 10, "median_wait_ms": 6522.0, "longest_wait_ms": 11003.5}
    assert found["fila"]["acme"] == {"messages": 2400, "median_wait_ms": 6021.0, "longest_wait_ms": 12045.0}
    assert (found["seconds"], found["rate_per_s"]) == (12.1, 199.2)


def test_who_has_no_documents_is_not_sent_to_them(monkeypatch, tmp_path):
    """A wheel holds none."""
    monkeypatch.setattr(result, "CHECKOUT", tmp_path)

    assert result._next_steps("fila")[-1] == plain("More: fila help")
