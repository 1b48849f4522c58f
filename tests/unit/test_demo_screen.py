"""Drawing in place: what a terminal shows after several frames, and what each kind of output gets."""

import io

import pytest
from tests.terminal import Terminal

from fila.demo.screen import Screen, can_redraw, canvas_of
from fila.demo.text import Canvas


class Output(io.StringIO):
    """A stream that is a terminal or not, in an encoding."""

    def __init__(self, *, terminal=True, encoding="utf-8"):
        super().__init__()
        self._terminal = terminal
        self._encoding = encoding

    @property
    def encoding(self):
        return self._encoding

    def isatty(self):
        return self._terminal


def canvas(width=20, height=10):
    return Canvas(width, height, colour=False, blocks=True)


def test_frame_replaces_the_one_before():
    """Longer lines and more rows of the last frame leave nothing behind, and what was there before stays."""
    output, terminal = Output(), Terminal(20, 10)
    terminal.feed("$ fila demo\n")
    screen = Screen(output)

    for lines in (
        ["a long line", "second", "third"],
        ["short", ""],
        ["one", "two", "three", "four"],
        ["end"],
    ):
        screen.draw(lines, canvas())

    assert terminal.feed(output.getvalue()).screen == "$ fila demo\nend"


def test_frame_at_the_bottom_scrolls_once():
    """The first frame makes its room, the others take the same."""
    output, terminal = Output(), Terminal(20, 4)
    terminal.feed("1\n2\n3\n")
    screen = Screen(output)

    for number in range(5):
        screen.draw([f"frame {number}", "below"], canvas(height=4))

    assert terminal.feed(output.getvalue()).everything == "1\n2\n3\nframe 4\nbelow"


def test_changed_size_begins_a_clean_screen():
    """How a terminal wraps old lines is its own affair: nothing of them is trusted."""
    output = Output()
    screen = Screen(output)

    screen.draw(["x" * 20, "y"], canvas())
    before = output.tell()
    screen.draw(["narrow"], canvas(width=10))

    # It has wrapped the first line into two rows.
    terminal = Terminal(10, 10).feed("x" * 10 + "\n" + "x" * 10 + "\ny\n")
    assert terminal.feed(output.getvalue()[before:]).screen == "narrow"


@pytest.mark.parametrize(
    ("stream", "environment", "expected"),
    [
        (Output(), {"TERM": "xterm"}, True),
        (Output(), {"TERM": "dumb"}, False),
        (Output(), {}, False),
        (Output(terminal=False), {"TERM": "xterm"}, False),
    ],
)
def test_only_a_terminal_that_can_move_its_cursor_is_drawn_on(stream, environment, expected):
    """Others get the plain table."""
    assert can_redraw(stream, environment) is expected
    assert canvas_of(stream, environment).colour is expected


def test_no_color_is_honoured():
    """Any value that is not empty counts, as no-color.org has it."""
    assert not canvas_of(Output(), {"TERM": "xterm", "NO_COLOR": "1"}).colour
    assert canvas_of(Output(), {"TERM": "xterm", "NO_COLOR": ""}).colour


@pytest.mark.parametrize(
    ("encoding", "expected"), [("utf-8", True), ("ascii", False), ("latin-1", False), (None, False)]
)
def test_blocks_are_drawn_where_the_encoding_has_them(encoding, expected):
    """Else a bar would be an error."""
    assert canvas_of(Output(encoding=encoding), {}).blocks is expected
