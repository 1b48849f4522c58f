"""`fila demo` as people run it: in a terminal, piped, interrupted, and on machines that are not theirs."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.terminal import Terminal

from fila import limits
from fila.cli.main import main

TIMEOUT_S = 60
# The flood takes so long: a run is a second longer at most.
SECONDS = "1"
PYTHON = Path(sys.executable)


class Demo:
    """The demo as a child process whose temporary directory is its own."""

    def __init__(self, directory, *arguments, size=None, environment=None, command=None):
        self.temporary = directory / "tmp"
        self.temporary.mkdir()
        self._ours, theirs = pty.openpty() if size else (None, subprocess.PIPE)
        if size:
            columns, rows = size
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        own = {
            name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS", "LINES"}
        }
        settings = {"TERM": "xterm", "TMPDIR": str(self.temporary), "PYTHONIOENCODING": "utf-8"}
        self.process = subprocess.Popen(
            [*(command or [PYTHON, "-m", "fila"]), "demo", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.PIPE,
            env=own | settings | (environment or {}),
            cwd=directory,
            # Signals to it and all that it starts do not reach the tests.
            start_new_session=True,
        )
        self.seen = ""
        if size:
            os.close(theirs)

    def read_until(self, pattern):
        """Read what it draws until something is there."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while not re.search(pattern, self.seen):
            assert time.monotonic() < deadline_s, self.seen
            if not self._read_some():
                raise AssertionError(f"it ended before: {self.seen} {self.process.stderr.read()}")

    def _read_some(self):
        select.select([self._ours], [], [], TIMEOUT_S)
        try:
            chunk = os.read(self._ours, 65_536)
        except OSError:
            # How Linux says that the other side is closed.
            return False
        self.seen += chunk.decode()
        return bool(chunk)

    def finish(self):
        """Read to the end; return the exit code, what it wrote and what it complained about."""
        if self._ours is None:
            output, errors = self.process.communicate(timeout=TIMEOUT_S)
            return self.process.returncode, output.decode(), errors.decode()
        while self._read_some():
            pass
        errors = self.process.stderr.read().decode()
        return self.process.wait(TIMEOUT_S), self.seen, errors

    def hang_up(self):
        """Close the terminal, as closing its window does."""
        os.close(self._ours)
        self._ours = None

    @property
    def leftovers(self):
        """Whatever is left in the temporary directory, and processes of its session."""
        return [*self.temporary.iterdir(), *members_of_session(self.process.pid)]

    def close(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        if self._ours is not None:
            os.close(self._ours)


def members_of_session(session):
    """Return the processes of a session: what the demo has started, whoever is its parent now."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, its_session = status.read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(its_session) == session and state != "Z":
            found.append(status.parent.name)
    return found


@pytest.fixture
def start(tmp_path):
    """Start demos that are gone when the test is."""
    started = []

    def start_one(*arguments, **options):
        started.append(Demo(tmp_path, *arguments, **options))
        return started[-1]

    yield start_one
    for demo in started:
        demo.close()


def row(text, queue, tenant):
    """Return the messages and the two waits of a tenant, in milliseconds, as the table shows them."""
    _, title, rest = text.partition(f"\n{queue}")
    assert title, text
    shown = re.search(
        rf"^  {tenant} +([\d,]+) messages +([\d.]+) (ms|s) +([\d.]+) (ms|s)", rest, re.MULTILINE
    )
    factor = {"ms": 1.0, "s": 1000.0}
    return (
        int(shown[1].replace(",", "")),
        float(shown[2]) * factor[shown[3]],
        float(shown[4]) * factor[shown[5]],
    )


def assert_shows_the_difference(text):
    """The quiet tenant waits behind the flood in one queue, not in the other; the flood waits the same in both."""
    fifo, fair = row(text, "First in", "bolt"), row(text, "fila", "bolt")
    assert fifo[0] == fair[0] == 10
    assert fifo[1] > 10 * max(1, fair[1])
    acme_fifo, acme_fair = row(text, "First in", "acme"), row(text, "fila", "acme")
    assert acme_fifo[0] == acme_fair[0] == 200
    assert 0.5 < acme_fifo[1] / acme_fair[1] < 2


def test_piped_it_prints_a_plain_table(start):
    """No control character, nothing on standard error, and the figures show what they should."""
    demo = start("--seconds", SECONDS)

    code, output, errors = demo.finish()

    assert (code, errors) == (0, "")
    assert all(character.isprintable() or character == "\n" for character in output)
    assert max(map(len, output.splitlines())) <= 80
    assert_shows_the_difference(output)
    assert demo.leftovers == []


def test_json_has_the_same_measurements(start):
    """One object on one line, in a terminal as well."""
    demo = start("--seconds", SECONDS, "--json", size=(80, 24))

    code, output, _ = demo.finish()

    assert code == 0
    found = json.loads(output)
    assert set(found) == {"seconds", "rate_per_s", "fifo", "fila"}
    assert found["fifo"]["bolt"]["median_wait_ms"] > 10 * max(1, found["fila"]["bolt"]["median_wait_ms"])
    assert {tenant["messages"] for tenant in found["fila"].values()} == {200, 10}


@pytest.mark.parametrize(
    "size", [(100, 30), (80, 24), (60, 24), (60, 12)], ids=lambda size: f"{size[0]}x{size[1]}"
)
def test_terminal_shows_both_runs_in_place_and_then_the_result(start, size):
    """Frames are drawn over each other: at the end only the result is there, whole, and no line was ever too long."""
    demo = start("--seconds", SECONDS, size=size)

    code, output, errors = demo.finish()

    assert (code, errors) == (0, "")
    # The terminal refuses lines that are too long, and every sequence that changes a mode.
    terminal = Terminal(*size).feed(output.replace("\r\n", "\n"))
    assert terminal.everything.count("Two queues of one broker") == 1
    assert "waiting for" not in terminal.everything
    assert_shows_the_difference(terminal.everything)
    frames = output.split("\x1b[J")
    assert len(frames) > 8
    assert any("acme" in frame and "░" in frame for frame in frames)
    assert "\x1b[36m" in output
    assert demo.leftovers == []


def test_no_color_in_a_terminal_moves_the_cursor_only(start):
    """NO_COLOR is about colour: the frames are still in place."""
    demo = start("--seconds", SECONDS, size=(80, 24), environment={"NO_COLOR": "1"})

    code, output, _ = demo.finish()

    assert code == 0
    assert re.search(r"\x1b\[[0-9;]*m", output) is None
    assert re.search(r"\x1b\[\d+A", output)


def test_encoding_without_blocks_gets_ascii_bars(start):
    """A terminal of another age shows bars too."""
    demo = start("--seconds", SECONDS, size=(80, 24), environment={"PYTHONIOENCODING": "ascii"})

    code, output, errors = demo.finish()

    assert (code, errors) == (0, "")
    assert output.isascii()
    assert "####" in output


def test_dumb_terminal_gets_the_plain_table(start):
    """Where the cursor cannot move, nothing is drawn over."""
    demo = start("--seconds", SECONDS, size=(80, 24), environment={"TERM": "dumb"})

    code, output, _ = demo.finish()

    assert code == 0
    assert "\x1b" not in output
    assert_shows_the_difference(output.replace("\r\n", "\n"))


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=str,
)
def test_signal_in_the_middle_leaves_nothing_behind(start, number, code):
    """No process, no directory, no traceback; the exit code says which signal it was."""
    demo = start("--seconds", "30", size=(80, 24))
    demo.read_until("waiting for")
    assert demo.leftovers != []

    demo.process.send_signal(number)

    assert demo.finish()[0::2] == (code, "")
    assert demo.leftovers == []
    # The last frame stays, and the prompt comes below it, or below the ^C that a terminal shows there.
    assert demo.seen.endswith("\x1b[J\r\n" if number == signal.SIGINT else "\x1b[J")


def test_impatient_interrupts_leave_nothing_behind_either(start):
    """Whoever presses Ctrl-C again and again does not stop the clean-up."""
    demo = start("--seconds", "30", size=(80, 24))
    demo.read_until("waiting for")

    while demo.process.poll() is None:
        demo.process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            demo.process.wait(0.003)

    assert demo.leftovers == []


def test_closed_terminal_leaves_nothing_behind(start):
    """There is nobody to draw for."""
    demo = start("--seconds", "30", size=(80, 24))
    demo.read_until("waiting for")

    demo.hang_up()

    assert demo.process.wait(TIMEOUT_S) == 1
    assert demo.process.stderr.read() == b""
    assert demo.leftovers == []


def test_commands_to_try_next_exist(start):
    """They are the ones of this command line, and are written as the demo was."""
    demo = start("--seconds", "0.5")

    _, output, _ = demo.finish()

    commands = re.findall(r"^  python -m fila (.*)$", output.partition("Try next:")[2], re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        words = command.replace('"', "").split()
        context = main.make_context("fila", words)
        _, found, rest = main.resolve_command(context, words)
        assert found.make_context(found.name, rest, parent=context)


def test_program_is_named_as_it_was_called(start):
    """Whoever ran `.venv/bin/fila` has no `fila` in the path: what is shown can be copied."""
    elsewhere = {"PATH": "/usr/bin:/bin"}
    demo = start("--seconds", "0.5", command=[PYTHON.parent / "fila"], environment=elsewhere)

    _, output, _ = demo.finish()

    assert f"  {PYTHON.parent / 'fila'} server\n" in output


def test_program_in_the_path_is_named_by_its_name(start):
    """As one would type it."""
    path = f"{PYTHON.parent}:{os.environ['PATH']}"
    demo = start("--seconds", "0.5", command=[PYTHON.parent / "fila"], environment={"PATH": path})

    _, output, _ = demo.finish()

    assert "\n  fila server\n" in output


@pytest.mark.parametrize("seconds", ["0", "31", "nan"])
def test_length_has_bounds(start, seconds):
    """It promises to take less than a minute."""
    code, output, errors = start("--seconds", seconds).finish()

    assert (code, output) == (2, "")
    assert "--seconds" in errors


def test_settings_of_the_surroundings_do_not_matter(start, tmp_path):
    """A fila.toml here, a variable there: the demo is the same everywhere, and touches no data of anybody."""
    (tmp_path / "fila.toml").write_text('[server]\nlisten_addr = "127.0.0.1:1"\n')
    demo = start("--seconds", "0.5", environment={"FILA_ADDR": "127.0.0.1:1", "FILA_DATA_DIR": "/nowhere"})

    code, _, errors = demo.finish()

    assert (code, errors) == (0, "")


@pytest.fixture
def small_disk(tmp_path):
    """A file system with less room than a broker keeps free; where this user may not mount one there is no test."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={limits.DISK_FREE_BYTES_MIN // 2}", "tmpfs", path],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield path
    subprocess.run(["umount", path], check=True)


def test_full_disk_is_one_sentence_with_a_remedy(start, small_disk):
    """The temporary directory is often small, and nobody has chosen it."""
    demo = start(environment={"TMPDIR": str(small_disk)})

    code, output, errors = demo.finish()

    assert (code, output) == (5, "")
    assert len(errors.splitlines()) == 1
    assert "TMPDIR" in errors
    assert list(small_disk.iterdir()) == []


def test_reader_that_goes_is_no_error(start):
    """`| head -1` has seen enough: the exit code is that of others in a pipeline."""
    demo = start("--seconds", "0.5")
    demo.process.stdout.close()

    code = demo.process.wait(TIMEOUT_S)

    assert (code, demo.process.stderr.read()) == (141, b"")
    assert demo.leftovers == []
