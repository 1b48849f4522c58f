"""Where the command line's output goes: full disks, pipes that close, terminals that could be commanded, early Ctrl-C."""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.integration.pseudo_terminal import fila_at_terminal
from tests.integration.server_process import ServerProcess

DIM, OFF = "\x1b[2m", "\x1b[0m"
FILA = [sys.executable, "-m", "fila"]


@pytest.fixture(scope="module")
def addr(tmp_path_factory):
    """Where a broker is."""
    with ServerProcess(tmp_path_factory.mktemp("broker")) as server:
        yield server.wait_until_ready().address


@pytest.fixture
def fila(addr):
    """Run commands against the broker."""

    def run(*arguments, stdout=subprocess.PIPE, input_bytes=None):
        return subprocess.run(
            [*FILA, *map(str, arguments)],
            env=os.environ | {"FILA_ADDR": addr},
            input=input_bytes,
            stdout=stdout,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )

    return run


@pytest.fixture
def orders(fila, request):
    """A queue of one's own."""
    name = re.sub(r"\W+", "_", request.node.name)
    assert fila("queue", "create", name).returncode == 0
    return name


def waiting(fila, queue):
    """Return how many messages wait, and how many are leased."""
    stats = json.loads(fila("queue", "inspect", queue).stdout)
    return stats["waiting"], stats["in_flight"]


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["queue", "list"], ["consume", "{}"], ["consume", "{}", "--ack"]]
)
def test_full_disk_gets_one_sentence(fila, orders, arguments):
    """With exit code 1; what could not be written is in the queue, and nobody has it."""
    fila("enqueue", orders, "--lines", input_bytes=b"x\n" * 50)

    with Path("/dev/full").open("wb") as full:
        finished = fila(*(argument.format(orders) for argument in arguments), stdout=full)

    assert (finished.returncode, finished.stderr) == (
        1,
        b"Error: cannot write the output: No space left on device\n",
    )
    assert waiting(fila, orders) == (50, 0)


@pytest.mark.parametrize("arguments", [["--help"], ["queue", "list"], ["consume", "{}", "--ack"]])
def test_pipe_that_nobody_reads_ends_as_other_programs_do(fila, orders, arguments):
    """141, without a word, and nothing is acked."""
    fila("enqueue", orders, "x")
    ours, theirs = os.pipe()
    os.close(ours)

    finished = fila(*(argument.format(orders) for argument in arguments), stdout=theirs)
    os.close(theirs)

    assert (finished.returncode, finished.stderr) == (141, b"")
    assert waiting(fila, orders) == (1, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells when a pipe is empty")
def test_what_a_reader_did_not_take_from_the_pipe_is_in_the_queue(addr, fila, orders):
    """`| head -n 3` takes three messages out of the queue, not what the pipe would hold; the fourth counts no attempt."""
    fila("enqueue", orders, "--lines", input_bytes=b"".join(b"%d\n" % number for number in range(1_000)))
    script = f"{' '.join(FILA)} consume {orders} --ack --addr {addr} | head -n 3; echo ${{PIPESTATUS[0]}}"

    finished = subprocess.run(["bash", "-c", script], capture_output=True, check=True, timeout=60)

    assert (finished.stdout, finished.stderr) == (b"0\n1\n2\n141\n", b"")
    assert waiting(fila, orders) == (997, 0)
    again = json.loads(fila("consume", orders, "--json", "--count", 1).stdout)
    assert (again["payload"], again["attempt_count"]) == ("3", 0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells when a pipe is empty")
def test_message_larger_than_the_pipe_waits_for_its_reader(addr, fila, orders):
    """A reader that has not come to its end has not got it: it is acked with its last byte."""
    fila("enqueue", orders, "--file", "-", input_bytes=b"x" * 300_000)
    command = [*FILA, "consume", orders, "--ack", "--wait", "30", "--addr", addr]
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as consuming:
        begun = consuming.stdout.read(1)
        while len(begun) < 299_990:
            begun += consuming.stdout.read(min(4_096, 299_990 - len(begun)))
        assert waiting(fila, orders) == (0, 1)
        consuming.stdout.close()
        assert consuming.wait(30) == 141

    assert waiting(fila, orders) == (1, 0)


def test_a_look_fits_into_a_pipe_that_is_read_later(addr, fila, orders):
    """Nothing is lost by a look: it does not wait for its reader, and the pipe stays as it was."""
    fila("enqueue", orders, "--lines", input_bytes=b"x\n" * 1_000)
    ours, theirs = os.pipe()

    finished = fila("consume", orders, stdout=theirs)
    os.close(theirs)

    with os.fdopen(ours, "rb") as pipe:
        assert (finished.returncode, pipe.read()) == (0, b"x\n" * 1_000)
    assert waiting(fila, orders) == (1_000, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="only there is a pipe's size changed")
def test_a_pipe_has_its_size_back_afterwards(addr, fila, orders):
    """Others write to it after us."""
    fila("enqueue", orders, "x")
    ours, theirs = os.pipe()
    size = fcntl.fcntl(theirs, fcntl.F_GETPIPE_SZ)
    command = [*FILA, "consume", orders, "--ack", "--addr", addr]
    with subprocess.Popen(command, stdout=theirs) as consuming:
        assert os.read(ours, 10) == b"x\n"
        assert consuming.wait(60) == 0

    assert fcntl.fcntl(theirs, fcntl.F_GETPIPE_SZ) == size
    os.close(ours)
    os.close(theirs)


def test_output_that_is_closed_takes_nothing(addr, fila, orders):
    """`>&-` is nowhere to print to."""
    fila("enqueue", orders, "x")
    script = f"{' '.join(FILA)} consume {orders} --ack --addr {addr} >&-"

    finished = subprocess.run(["bash", "-c", script], capture_output=True, check=False, timeout=60)

    assert finished.returncode == 1
    assert finished.stderr == b"Error: cannot write the output: Bad file descriptor\n"
    assert waiting(fila, orders) == (1, 0)


HOSTILE = b"\x1b]0;owned\x07\x1b[2J\xc2\x9b31m\rnext\n\tlast \xff\xe2\x80\xae"


def test_payload_cannot_command_a_terminal(addr, fila, orders):
    """Control characters are shown, not obeyed, of the payload, the key and JSON; --raw and pipes have them as they are."""
    fila("enqueue", orders, "--file", "-", "--key", "acme\x1b[31m", input_bytes=HOSTILE)

    shown, _ = fila_at_terminal("consume", orders, "--addr", addr)
    as_json, _ = fila_at_terminal("consume", orders, "--json", "--addr", addr)
    raw, _ = fila_at_terminal("consume", orders, "--raw", "--addr", addr)

    assert shown.splitlines()[0] == (
        f"{DIM}acme\\x1b[31m{OFF}  \\x1b]0;owned\\x07\\x1b[2J\\x9b31m\\rnext\\n\tlast \\xff\\u202e"
    )
    assert "acme\\u001b[31m" in as_json
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", re.sub(r"\x1b\[[02]m", "", shown + as_json))
    assert raw.startswith("\x1b]0;owned\x07\x1b[2J")
    assert fila("consume", orders).stdout == HOSTILE + b"\n"


def test_json_at_a_terminal_means_what_it_means_elsewhere(addr, fila, orders):
    """What is escaped for the eye is the same to a program."""
    payload = "a\u202eb\x7f\u009b\U000e0001 注"
    fila("enqueue", orders, payload)

    shown, _ = fila_at_terminal("consume", orders, "--json", "--addr", addr)

    assert json.loads(shown.splitlines()[0])["payload"] == payload
    assert not re.search("[\x7f-\x9f\u202e\U000e0001]", shown)
    assert "注" in shown


def test_a_terminal_shows_whose_message_it_is(addr, fila, orders):
    """The key stands before the payload, in a column, and the attempt from the second on; a pipe has the payloads."""
    fila("enqueue", orders, "first", "--key", "longer-name")
    fila("enqueue", orders, "second", "--key", "acme")
    with suppress(subprocess.TimeoutExpired):
        # Dies with both in its hands: the one that it was working on counts as an attempt.
        script = (
            "import os\nfrom fila import Client\n"
            f"message = Client('{addr}').lease('{orders}')[0]\n"
            f"Client('{addr}').nack('{orders}', message.id, 'no')\n"
        )
        subprocess.run([sys.executable, "-c", script], check=True, timeout=60)

    shown, _ = fila_at_terminal(
        "consume", orders, "--wait", "2", "--addr", addr, environment={"NO_COLOR": "1"}
    )
    piped = fila("consume", orders)

    lines = shown.splitlines()[:2]
    assert sorted(lines) in (
        ["acme         second", "longer-name  attempt 2  first"],
        ["acme  second", "longer-name  attempt 2  first"],
    )
    assert sorted(piped.stdout.splitlines()) == [b"first", b"second"]


EARLY = """
import builtins, runpy, signal, sys

real, wanted = builtins.__import__, sys.argv[1]

def hear(name, *rest, **more):
    if name == wanted:
        builtins.__import__ = real
        signal.raise_signal(signal.SIGINT)
    return real(name, *rest, **more)

builtins.__import__ = hear
sys.argv = ["fila", "queue", "list"]
runpy.run_module("fila", run_name="__main__")
"""


@pytest.mark.parametrize(
    "module", ["fila.cli.main", "click", "fila.cli.group", "fila.cli.completing", "grpc"]
)
def test_ctrl_c_while_modules_are_loaded_is_quiet(addr, module):
    """It comes most often when a command was a mistake, which is seen as soon as it is typed."""
    finished = subprocess.run(
        [sys.executable, "-c", EARLY, module],
        env=os.environ | {"FILA_ADDR": addr},
        capture_output=True,
        check=False,
        timeout=60,
    )

    assert (finished.returncode, finished.stderr) == (128 + signal.SIGINT, b"")


def test_errors_of_usage_look_as_all_errors_do(addr):
    """Red at a terminal, unless no colour is wanted."""
    shown, code = fila_at_terminal("consume", "--no-such", "--addr", addr)
    plain, _ = fila_at_terminal("consume", "--no-such", "--addr", addr, environment={"NO_COLOR": "1"})

    assert code == 2
    assert "\x1b[31m\x1b[1mError: \x1b[0mNo such option" in shown
    assert "\nError: No such option" in plain


def test_too_large_a_file_is_not_said_to_have_the_size_that_was_read(fila, orders, tmp_path):
    """It was read as far as a message goes."""
    path = tmp_path / "big"
    path.write_bytes(bytes(5_000_000))

    finished = fila("enqueue", orders, "--file", path)

    assert finished.returncode == 2
    assert b"the payload has more than the 4," in finished.stderr


def test_lines_that_are_interrupted_say_how_many_went_in(addr, fila, orders):
    """Also none."""
    command = [*FILA, "enqueue", orders, "--lines", "--addr", addr]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as loading:
        follow = [*FILA, "consume", orders, "--follow", "--ack", "--addr", addr]
        with subprocess.Popen(follow, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as following:
            loading.stdin.write(b"one\n")
            loading.stdin.flush()
            assert following.stdout.readline() == b"one\n"
            following.terminate()
        loading.send_signal(signal.SIGINT)
        said, errors = loading.communicate(timeout=30)

    assert (loading.returncode, errors) == (130, b"")
    assert json.loads(said) == {"queue": orders, "enqueued": 1}


def test_nothing_for_a_queue_that_is_not_there_is_an_error_too(fila):
    """A script with a mistyped name hears of it before there is anything to send."""
    finished = fila("enqueue", "nowhere-to-be", "--lines", input_bytes=b"")

    assert (finished.returncode, finished.stdout) == (3, b"")
    assert finished.stderr.startswith(b"Error: there is no queue 'nowhere-to-be'")


def test_queue_that_goes_away_under_a_load_is_said_to_be_missing(addr, fila, orders):
    """Nothing but that: which message met it first, and of which producer, helps nobody."""
    command = [*FILA, "enqueue", orders, "--lines", "--addr", addr]
    follow = [*FILA, "consume", orders, "--follow", "--addr", addr]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as loading:
        with subprocess.Popen(follow, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as following:
            loading.stdin.write(b"one\n")
            loading.stdin.flush()
            assert following.stdout.readline() == b"one\n"
            following.terminate()
        assert fila("queue", "delete", orders).returncode == 0
        _, errors = loading.communicate(b"two\n", timeout=30)

    assert loading.returncode == 3
    assert errors.startswith(f"Error: there is no queue '{orders}'".encode())
    assert b"producer" not in errors
