"""The command line at a terminal: tables as they stand there, colours, narrow windows, Ctrl-C."""

import json
import re
import subprocess
import sys

import pytest
from tests.integration.pseudo_terminal import CTRL_C, Terminal, fila_at_terminal
from tests.integration.server_process import ServerProcess

from fila.cli.output import duration, printable, shortened, size, text_width

BOLD, DIM, RED, GREEN, YELLOW, OFF = (f"\x1b[{code}m" for code in (1, 2, 31, 32, 33, 0))
ID = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"


@pytest.fixture(scope="module")
def addr(tmp_path_factory):
    """Where a broker is."""
    with ServerProcess(tmp_path_factory.mktemp("broker")) as server:
        yield server.wait_until_ready().address


@pytest.fixture
def fresh(tmp_path):
    """Where a broker is that has nothing yet."""
    with ServerProcess(tmp_path / "broker") as server:
        yield server.wait_until_ready().address


def piped(*arguments, addr, input_bytes=None):
    """Run a command without a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "fila", *arguments, "--addr", addr],
        input=input_bytes,
        capture_output=True,
        check=False,
        timeout=60,
    )


def plain(text):
    """Leave the colours out."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_list_is_a_table_with_colours(fresh):
    """Titles and names are bold, nothing is dim, and what waits for nobody is yellow."""
    assert plain(fila_at_terminal("queue", "list", "--addr", fresh)[0]) == (
        "There are no queues: create one with `fila queue create NAME`.\n"
    )
    piped("queue", "create", "orders", addr=fresh)
    piped("queue", "create", "q", addr=fresh)
    piped("enqueue", "orders", "x", addr=fresh)

    shown, code = fila_at_terminal("queue", "list", "--addr", fresh)

    assert code == 0
    assert shown == (
        f"{BOLD}NAME{OFF}    {BOLD}WAITING{OFF}  {BOLD}IN FLIGHT{OFF}  {BOLD}CONSUMERS{OFF}\n"
        f"{BOLD}orders{OFF}        {YELLOW}1{OFF}          {DIM}0{OFF}          {DIM}0{OFF}\n"
        f"{BOLD}q{OFF}             {DIM}0{OFF}          {DIM}0{OFF}          {DIM}0{OFF}\n"
    )


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colour_where_none_is_wanted(addr, environment):
    """The table is the same without."""
    piped("queue", "create", "plain", addr=addr)

    shown, _ = fila_at_terminal("queue", "list", "--addr", addr, environment=environment)

    assert "\x1b" not in shown
    assert shown.splitlines()[0].split() == ["NAME", "WAITING", "IN", "FLIGHT", "CONSUMERS"]


def test_error_is_red_at_a_terminal_only(addr):
    """A file keeps the plain sentence, unless FORCE_COLOR asks for more."""
    shown, code = fila_at_terminal("queue", "inspect", "nowhere-at-all", "--addr", addr)
    finished = piped("queue", "inspect", "nowhere-at-all", addr=addr)

    assert code == finished.returncode == 3
    assert shown.startswith(f"{RED}{BOLD}Error: {OFF}there is no queue")
    assert finished.stderr.startswith(b"Error: there is no queue")


def test_inspect_shows_settings_and_keys(fresh):
    """Names on the left, values in line, keys with most waiting first."""
    piped("queue", "create", "orders", "--visibility-timeout", "60000", addr=fresh)
    piped("enqueue", "orders", "--lines", "--key", "bolt", addr=fresh, input_bytes=b"1\n")
    piped("enqueue", "orders", "--lines", "--key", "acme \x1b[31m", addr=fresh, input_bytes=b"1\n2\n")

    shown, _ = fila_at_terminal("queue", "inspect", "orders", "--addr", fresh)

    assert plain(shown) == (
        "name                orders\n"
        "discipline          drr\n"
        "quantum             1,000\n"
        "visibility timeout  1 min\n"
        "waiting             3\n"
        "  for a retry       0\n"
        "in flight           0\n"
        "consumers           0\n"
        "fairness keys       2\n"
        "messages so far     3\n"
        "\n"
        "KEY            WAITING  WEIGHT  DEFICIT\n"
        "acme \\x1b[31m        2       1        0\n"
        "bolt                 1       1        0\n"
    )
    assert "acme \x1b" not in shown


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_table_fits_its_terminal(addr, columns):
    """A long name gives way, numbers never do."""
    name = "q" * 90
    piped("queue", "create", name, addr=addr)

    shown, _ = fila_at_terminal("queue", "list", "--addr", addr, columns=columns)

    lines = plain(shown).splitlines()
    assert max(map(len, lines)) <= max(columns, 45)
    (line,) = [line for line in lines if line.startswith("qq")]
    assert line.split()[1:] == ["0", "0", "0"]
    assert ("…" in line) == (columns < 130)


def test_message_goes_in_and_out_at_a_terminal(addr):
    """An id for one, a number for many, a payload per line, and a word where a look gave back."""
    piped("queue", "create", "inout", addr=addr)
    one, _ = fila_at_terminal("enqueue", "inout", "höllo", "--addr", addr)
    looked, _ = fila_at_terminal("consume", "inout", "--addr", addr)
    acked, _ = fila_at_terminal("consume", "inout", "--ack", "--addr", addr)
    empty, code = fila_at_terminal("consume", "inout", "--addr", addr)

    assert re.fullmatch(f"{ID}\n", one)
    assert plain(looked) == "default  höllo\n1 message given back: --ack takes them out of the queue.\n"
    assert acked == f"{DIM}default{OFF}  höllo\n"
    assert plain(empty) == "No message is ready in inout: --follow waits for one.\n"
    assert code == 0


def test_json_is_indented_for_people_and_one_line_for_programs(addr):
    """What it says is the same."""
    piped("queue", "create", "shape", addr=addr)

    shown, _ = fila_at_terminal("queue", "inspect", "shape", "--json", "--addr", addr)
    told = piped("queue", "inspect", "shape", addr=addr).stdout

    assert shown.startswith('{\n  "name": "shape",\n')
    assert told.count(b"\n") == 1
    assert json.loads(shown) == json.loads(told)


def test_many_lines_show_how_far_they_have_come(addr, tmp_path):
    """A bar with its share on the terminal, gone at the end."""
    piped("queue", "create", "many", addr=addr)
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"message {number}\n" for number in range(150_000)), encoding="utf-8")

    shown, code = fila_at_terminal("enqueue", "many", "--lines", "--file", lines, "--addr", addr)

    assert code == 0
    assert re.search(r"\r━+╌* +\d+%  enqueued [\d,]+ messages, [\d,]+/s\x1b\[K", shown)
    assert shown.endswith("\r\x1b[KEnqueued 150,000 messages.\n")


def test_backup_into_a_file_shows_how_far_it_has_come(addr, tmp_path):
    """Where the messages themselves are not to be seen."""
    piped("queue", "create", "backup", addr=addr)
    piped("enqueue", "backup", "--lines", addr=addr, input_bytes=b"x\n" * 60_000)
    arguments = [sys.executable, "-m", "fila", "consume", "backup", "--ack", "--json", "--addr", addr]
    with (tmp_path / "backup.jsonl").open("wb") as file, Terminal(arguments, redirect=file) as terminal:
        code = terminal.end()

    assert code == 0
    assert re.search(r"━+╌* +\d+%  consumed [\d,]+ messages", terminal.raw)
    assert terminal.raw.endswith("\r\x1b[K")
    assert (tmp_path / "backup.jsonl").read_bytes().count(b"\n") == 60_000


def test_bar_fits_a_narrow_terminal(addr, tmp_path):
    """Where there is no room for a bar, there is the number; no line is wider than the terminal."""
    piped("queue", "create", "narrow", addr=addr)
    lines = tmp_path / "lines.txt"
    lines.write_text("x\n" * 150_000, encoding="utf-8")

    shown, _ = fila_at_terminal("enqueue", "narrow", "--lines", "--file", lines, "--addr", addr, columns=36)

    drawn = [line for line in re.split(r"\r|\x1b\[K|\n", shown) if line]
    assert len(drawn) > 2
    assert max(map(len, drawn)) < 36


@pytest.mark.parametrize("options", [["--no-ack"], ["--ack"], []])
def test_ctrl_c_leaves_no_lease(addr, options):
    """What was looked at, and what was only fetched ahead, goes back without an attempt."""
    name = f"interrupted{len(options)}{options[:1] == ['--ack']}"
    piped("queue", "create", name, addr=addr)
    piped("enqueue", name, "--lines", addr=addr, input_bytes=b"1\n2\n3\n")
    arguments = [sys.executable, "-m", "fila", "consume", name, "--follow", *options, "--addr", addr]
    with Terminal(arguments) as terminal:
        terminal.read_until("3\r\n").press(CTRL_C)
        code = terminal.end()

    stats = json.loads(piped("queue", "inspect", name, addr=addr).stdout)
    assert code == 130
    assert "Traceback" not in terminal.text
    assert stats["in_flight"] == 0
    assert stats["waiting"] == (0 if options == ["--ack"] else 3)
    again = piped("consume", name, "--json", addr=addr).stdout
    assert {json.loads(line)["attempt_count"] for line in again.splitlines()} <= {0}


def test_ctrl_c_at_a_read_of_the_keyboard_ends_at_once(addr):
    """Lines that were typed are in the queue, each as soon as it was typed."""
    piped("queue", "create", "typed", addr=addr)
    arguments = [sys.executable, "-m", "fila", "enqueue", "typed", "--lines", "--addr", addr]
    follow = [sys.executable, "-m", "fila", "consume", "typed", "--ack", "--follow", "--addr", addr]
    with Terminal(arguments) as typing, Terminal(follow) as following:
        typing.press(b"hello\n")
        following.read_until("hello\r\n")
        typing.press(CTRL_C)
        assert typing.end() == 130
        following.press(CTRL_C)
        assert following.end() == 130

    assert plain(typing.text).endswith("Enqueued 1 message.\n")


def test_pipe_that_closes_early_keeps_what_it_did_not_take(addr):
    """`| head -n 1` acks what its reader took, and no more: what lay in the pipe is in the queue."""
    piped("queue", "create", "head", addr=addr)
    text = b"".join(b"%d " % number * 2_000 + b"\n" for number in range(200))
    piped("enqueue", "head", "--lines", addr=addr, input_bytes=text)
    consume = f"{sys.executable} -m fila consume head --ack --addr {addr} | head -n 1 | wc -l"

    finished = subprocess.run(["bash", "-c", consume], capture_output=True, check=False, timeout=60)

    stats = json.loads(piped("queue", "inspect", "head", addr=addr).stdout)
    assert (finished.stdout.strip(), finished.stderr) == (b"1", b"")
    assert stats["in_flight"] == 0
    assert stats["waiting"] == 199


def test_help_reads_well_in_a_narrow_terminal():
    """No line is wider."""
    shown, code = fila_at_terminal("--help", columns=50)

    assert code == 0
    assert "\x1b" not in shown
    assert "fila enqueue orders" in shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0000005, "0.5 µs"),
        (0.00026, "260 µs"),
        (0.0042, "4.2 ms"),
        (0.2504, "250 ms"),
        (1.5, "1.5 s"),
        (30, "30 s"),
        (90.5, "90.5 s"),
        (300, "5 min"),
        (5400, "90 min"),
        (43_200, "12 h"),
    ],
)
def test_times_are_written_as_people_say_them(seconds, text):
    """In the unit that keeps them short."""
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (4096, "4 KiB"), (1536, "1.5 KiB"), (512 << 20, "512 MiB"), (3 << 40, "3 TiB")],
)
def test_sizes_are_written_as_people_say_them(count, text):
    """In the unit that keeps them short."""
    assert size(count) == text


def test_wide_characters_take_two_columns_and_controls_none():
    """As a terminal counts them; a text cannot command it."""
    assert [text_width(text) for text in ("abc", "注文", "é", "e\u0301")] == [3, 4, 1, 1]
    assert shortened("注文注文", 5) == "注文…"
    assert printable("a\x1b[2J\n注") == "a\\x1b[2J\\n注"
