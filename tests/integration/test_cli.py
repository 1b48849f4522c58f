"""The command line against a real broker: what it prints, where, and how it ends."""

import json
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from fila.cli.connection import Where, run_with_client
from fila.cli.main import COMMANDS, main
from fila.cli.output import print_table
from fila.errors import Absence, Code, RPCError, UnavailableError


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def fila(*arguments, input_bytes=None, **environment):
    """Run a command to its end, in this process: starting one takes longer than most commands."""
    return CliRunner().invoke(main, arguments, input=input_bytes, env=environment)


@contextmanager
def server(directory, *arguments, working_dir=None):
    """Start `fila server`, and wait until it says where it listens."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "fila",
            "server",
            "--listen",
            "127.0.0.1:0",
            "--data-dir",
            directory,
            *arguments,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=working_dir or directory.parent,
    )
    try:
        first_line = process.stdout.readline()
        assert " listens on " in first_line, process.stderr.read()
        process.address = first_line.split()[-1]
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


@pytest.fixture(scope="module")
def addr(tmp_path_factory):
    """Where a broker is."""
    with server(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process.address


@pytest.fixture
def orders(addr, request):
    """Environment for commands, and a queue of one's own."""
    name = request.node.name.replace("[", "_").rstrip("]")
    assert fila("queue", "create", name, FILA_ADDR=addr).exit_code == 0
    return name


def test_message_goes_in_and_comes_out(addr, orders):
    """With all that was said about it, as JSON, because nobody is watching."""
    finished = fila(
        "enqueue", orders, "höllo", "--key", "acme", "--weight", "2", "--header", "a=b=c", "--addr", addr
    )
    message_id = json.loads(finished.stdout)["id"]

    consumed = fila("consume", orders, "--count", "1", "--ack", "--json", "--addr", f"http://{addr}")

    message = json.loads(consumed.stdout)
    assert message["id"] == message_id
    assert message["payload"] == "höllo"
    assert message["headers"] == {"a": "b=c"}
    assert (message["fairness_key"], message["weight"], message["attempt_count"]) == ("acme", 2, 0)
    assert json.loads(fila("queue", "inspect", orders, FILA_ADDR=addr).stdout)["waiting"] == 0


def test_payload_is_printed_as_it_is(addr, orders):
    """Bytes in, bytes out, a line for each message."""
    fila("enqueue", orders, "--file", "-", input_bytes=b"\xff\x00", FILA_ADDR=addr)
    fila("enqueue", orders, "--file", "-", input_bytes=b"second", FILA_ADDR=addr)

    finished = fila("consume", orders, FILA_ADDR=addr)

    assert finished.exit_code == 0
    assert finished.stdout_bytes == b"\xff\x00\nsecond\n"


def test_payload_that_is_no_text_is_base64_in_json(addr, orders):
    """JSON has no bytes."""
    fila("enqueue", orders, "--file", "-", input_bytes=b"\xff", FILA_ADDR=addr)

    finished = fila("consume", orders, "--count", "1", "--json", FILA_ADDR=addr)

    message = json.loads(finished.stdout)
    assert message["payload_base64"] == "/w=="
    assert "payload" not in message


def test_payload_from_a_file(addr, orders, tmp_path):
    """As it stands in it."""
    path = tmp_path / "order.json"
    path.write_bytes(b'{"a": 1}\n')
    fila("enqueue", orders, "--file", str(path), FILA_ADDR=addr)

    assert fila("consume", orders, "--count", "1", FILA_ADDR=addr).stdout_bytes == b'{"a": 1}\n\n'


def test_consume_without_ack_gives_back(addr, orders):
    """Looking takes nothing, and counts no attempt. It is what is done unless --ack is given."""
    fila("enqueue", orders, "x", FILA_ADDR=addr)

    for options in (["--count", "1"], [], ["--no-ack"]):
        finished = fila("consume", orders, *options, "--json", FILA_ADDR=addr)
        assert json.loads(finished.stdout)["attempt_count"] == 0

    stats = json.loads(fila("queue", "inspect", orders, FILA_ADDR=addr).stdout)
    assert (stats["waiting"], stats["in_flight"]) == (1, 0)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_interrupted_consume_leaves_no_lease(addr, orders, number, code):
    """Ctrl-C is a way to end, and so is what a supervisor sends."""
    fila("enqueue", orders, "x", FILA_ADDR=addr)
    process = subprocess.Popen(
        [sys.executable, "-m", "fila", "consume", orders, "--follow", "--no-ack", "--addr", addr],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"x\n"

    process.send_signal(number)
    _, errors = process.communicate(timeout=20)

    assert process.returncode == code
    assert errors == b""
    stats = json.loads(fila("queue", "inspect", orders, FILA_ADDR=addr).stdout)
    assert (stats["waiting"], stats["in_flight"]) == (1, 0)


def test_queues_are_administered(addr):
    """Create, list, inspect, purge, delete."""
    created = fila(
        "queue",
        "create",
        "letters",
        "--discipline",
        "fifo",
        "--visibility-timeout",
        "5s",
        "--quantum",
        "7",
        FILA_ADDR=addr,
    )
    assert (created.exit_code, json.loads(created.stdout)) == (0, {"queue": "letters", "created": True})
    fila("enqueue", "letters", "x", FILA_ADDR=addr)

    listed = json.loads(fila("queue", "list", FILA_ADDR=addr).stdout)
    assert {"name": "letters", "waiting": 1, "in_flight": 0, "consumers": 0} in listed
    stats = json.loads(fila("queue", "inspect", "letters", FILA_ADDR=addr).stdout)
    assert (stats["discipline"], stats["visibility_timeout_ms"], stats["quantum"]) == ("fifo", 5000, 7)
    assert stats["keys"] == [{"key": "default", "waiting": 1, "weight": 1, "deficit": 0}]
    purged = fila("queue", "purge", "letters", FILA_ADDR=addr)
    assert json.loads(purged.stdout) == {"queue": "letters", "purged": 1}
    deleted = fila("queue", "delete", "letters", FILA_ADDR=addr)
    assert (deleted.exit_code, json.loads(deleted.stdout)) == (0, {"queue": "letters", "deleted": True})
    assert fila("queue", "delete", "letters", FILA_ADDR=addr).exit_code == 3


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["queue", "create", "exit_code"], 4, "exists"),
        (["queue", "create", "a b"], 2, "space"),
        (
            ["queue", "create", "x", "--visibility-timeout", "5"],
            2,
            "5, which is milliseconds, is not within 1 s to 12 h",
        ),
        (["queue", "create", "x", "--visibility-timeout", "13h"], 2, "13h is not within 1 s to 12 h"),
        (["queue", "create", "x", "--visibility-timeout", "soon"], 2, "write 30s, 5m, 2h"),
        (["queue", "create", "--force"], 2, "No such option '--force'"),
        (["enqueue", "exit_code", "x", "--key", ""], 2, "the key is empty"),
        (["bench", "foo"], 2, "and all for all of them"),
        (["help", "nonsense"], 2, "nonsense"),
        (["help", "consume", "further"], 2, "consume` has no commands"),
        (["consume", "q", "--json", "--raw"], 2, "either --json or --raw"),
        (["queue", "inspect", "missing"], 3, "`fila queue create missing`"),
        (["queue", "delete", "missing"], 3, "`fila queue list`"),
        (["enqueue", "missing", "x"], 3, "'missing': create it first (`fila queue create missing`"),
        (["consume", "missing"], 3, "'missing': create it first (`fila queue create missing`"),
        (["enqueue", "missing"], 2, "PAYLOAD"),
        (["enqueue", "missing", "x", "--header", "nothing"], 2, "NAME=VALUE"),
        (["queue", "list", "--addr", "ftp://x"], 2, "address"),
        (["nonsense"], 2, "nonsense"),
        (["consume", "q", "--follow", "--wait", "1"], 2, "either --follow or --wait"),
    ],
)
def test_exit_code_tells_the_kind_of_error(addr, arguments, code, text):
    """And one sentence on standard error tells the rest."""
    fila("queue", "create", "exit_code", FILA_ADDR=addr)

    finished = fila(*arguments, FILA_ADDR=addr)

    assert finished.exit_code == code
    assert finished.stdout_bytes == b""
    assert text in finished.stderr
    assert "Traceback" not in finished.stderr


@pytest.mark.parametrize(
    "arguments", [["queue", "list"], ["queue", "inspect", "q"], ["enqueue", "q", "x"], ["consume", "q"]]
)
def test_broker_that_is_not_there_gets_one_sentence(arguments):
    """With the command that starts it, there."""
    address = f"127.0.0.1:{free_port()}"
    finished = fila(*arguments, "--addr", address)

    assert finished.exit_code == 6
    assert finished.stderr.splitlines() == [
        (
            f"No broker answers at {address}: start one with `fila server --listen {address}`, "
            "or say where it is with --addr."
        )
    ]


ABSENT = "No broker answers at nowhere.invalid: start one with `fila server`, or say where it is with --addr."


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (UnavailableError("nobody there", absence=Absence.NOBODY), ABSENT),
        (
            RPCError("Deadline Exceeded", Code.DEADLINE_EXCEEDED),
            "The broker at nowhere.invalid did not answer in time: try again, and if that does not help, see its log.",
        ),
        (
            UnavailableError("Stream removed (Socket closed)", absence=Absence.LOST),
            (
                "The broker at nowhere.invalid has gone: try again when it is back; "
                "what it had not answered may be done or not."
            ),
        ),
    ],
)
def test_absence_becomes_a_sentence_with_a_remedy(capsys, error, sentence):
    """A broker that is not there, one that has gone and one that hangs are told apart."""

    async def fail(client):
        raise error

    with pytest.raises(SystemExit) as ended:
        run_with_client(Where("nowhere.invalid"), fail)

    assert ended.value.code == 6
    assert capsys.readouterr().err.splitlines() == [sentence]


def test_broker_that_answers_and_refuses_is_not_said_to_be_away(addr, capsys):
    """Its own sentence is the one that helps."""

    async def fail(client):
        raise UnavailableError("the broker stops")

    with pytest.raises(SystemExit) as ended:
        run_with_client(Where(addr), fail)

    assert ended.value.code == 6
    assert capsys.readouterr().err.splitlines() == ["Error: the broker stops"]


def test_broker_that_dies_under_a_consumer_gets_one_sentence(tmp_path):
    """It names the broker, and says that what was under way may be done or not."""
    with server(tmp_path / "data") as process:
        fila("queue", "create", "orders", FILA_ADDR=process.address)
        fila("enqueue", "orders", "x", FILA_ADDR=process.address)
        consumer = subprocess.Popen(
            [sys.executable, "-m", "fila", "consume", "orders", "--wait", "600", "--addr", process.address],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert consumer.stdout.readline() == "x\n"
        process.kill()
        _, errors = consumer.communicate(timeout=20)

    assert consumer.returncode == 6
    (sentence,) = errors.splitlines()
    assert sentence.startswith(
        (f"The broker at {process.address} has gone", f"No broker answers at {process.address}")
    )


def test_follow_sits_out_a_restart_and_says_so(tmp_path):
    """It goes on where it was, and standard error tells of the pause."""
    with server(tmp_path / "data") as process:
        address = process.address
        fila("queue", "create", "orders", FILA_ADDR=address)
        fila("enqueue", "orders", "before", FILA_ADDR=address)
        consumer = subprocess.Popen(
            [sys.executable, "-m", "fila", "consume", "orders", "--follow", "--ack", "--addr", address],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert consumer.stdout.readline() == "before\n"
        process.kill()
        assert "lost its connection" in consumer.stderr.readline()
    with server(tmp_path / "data", "--listen", address) as process:
        fila("enqueue", "orders", "after", FILA_ADDR=address)
        assert consumer.stdout.readline().strip() in {"before", "after"}
        consumer.send_signal(signal.SIGINT)
        _, errors = consumer.communicate(timeout=20)

    assert consumer.returncode == 130
    assert "connected again" in errors


def test_help_loads_no_grpc():
    """Help is what one waits for most often."""
    script = (
        "import sys\n"
        "from fila.cli.main import main\n"
        "try: main(['--help'])\n"
        "finally: sys.exit(any(name.split('.')[0] in ('grpc', 'google') for name in sys.modules))\n"
    )
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False, timeout=30)

    assert finished.returncode == 0
    assert all(name in finished.stdout.decode() for name in COMMANDS)


def commands(command=main, path=("fila",)):
    """Yield every command with its path."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), (*path, name))


@pytest.mark.parametrize("path", [" ".join(path) for path, _ in commands()])
def test_every_command_has_help_with_an_example(path):
    """An example says more than a list of options."""
    finished = CliRunner().invoke(main, [*path.split()[1:], "--help"])

    assert finished.exit_code == 0
    assert f"\n    {path}" in finished.output
    assert "Example" in finished.output


def test_table_aligns_words_left_and_numbers_right(capsys):
    """As people read them."""
    print_table(("name", "waiting"), [("orders", 12_345), ("q", 7)])

    assert capsys.readouterr().out.splitlines() == ["NAME    WAITING", "orders   12,345", "q             7"]


def test_server_says_where_it_is_and_stops_when_told(tmp_path):
    """Where it listens, where the data is, what it recovered; SIGTERM ends it with 0, and the data is there again."""
    with server(tmp_path / "data") as process:
        fila("queue", "create", "orders", FILA_ADDR=process.address)
        fila("enqueue", "orders", "x", FILA_ADDR=process.address)
        process.terminate()
        said, errors = process.stdout.read(), process.stderr.read()
        process.wait(timeout=20)
        assert process.returncode == 0
        assert errors == ""
        assert str(tmp_path / "data") in said
        assert "recovered 0 queues, 0 messages" in said

    with server(tmp_path / "data") as process:
        assert fila("consume", "orders", "--ack", FILA_ADDR=process.address).stdout_bytes == b"x\n"
        process.send_signal(signal.SIGINT)
        said = process.stdout.read()
        process.wait(timeout=20)
        assert process.returncode == 0
        assert "recovered 1 queues, 1 messages" in said


def refused(*arguments, working_dir):
    """Run a server that must not start, and return its exit code and its sentence."""
    finished = subprocess.run(
        [sys.executable, "-m", "fila", "server", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd=working_dir,
    )
    assert finished.stdout == ""
    assert len(finished.stderr.splitlines()) == 1, finished.stderr
    return finished.returncode, finished.stderr


def test_second_server_on_the_same_data_is_refused(tmp_path):
    """Two writers would destroy it."""
    with server(tmp_path / "data"):
        code, sentence = refused(
            "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"), working_dir=tmp_path
        )

    assert code == 1
    assert str(tmp_path / "data") in sentence


def test_taken_port_is_refused(tmp_path):
    """Named, with what to do."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        code, sentence = refused(
            "--listen", f"127.0.0.1:{port}", "--data-dir", str(tmp_path / "data"), working_dir=tmp_path
        )

    assert code == 1
    assert sentence.startswith(f"Error: cannot listen on 127.0.0.1:{port}")
    assert "--listen (listen_addr)" in sentence


@pytest.mark.parametrize("given", ["{}", ":{}"])
def test_a_port_alone_is_one_of_this_machine_only(tmp_path, given):
    """It is what one types first; nobody else is let in by it."""
    port = free_port()
    with server(tmp_path / "data", "--listen", given.format(port)) as process:
        assert process.address == f"127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [("90000", 90_000), ("500m", 30_000_000), ("1500ms", 1_500), ("0.5h", 1_800_000)],
)
def test_times_are_given_as_people_say_them(addr, given, milliseconds):
    """Units or plain milliseconds, within what the broker allows."""
    fila("queue", "create", f"times{given}", "--visibility-timeout", given, FILA_ADDR=addr)
    inspected = json.loads(fila("queue", "inspect", f"times{given}", FILA_ADDR=addr).stdout)

    assert inspected["visibility_timeout_ms"] == milliseconds


def test_help_and_version_are_words_too():
    """What --help and --version say, also of a command within a command."""
    assert fila("help").stdout == fila("--help").stdout
    assert fila("help", "queue", "create").stdout == fila("queue", "create", "--help").stdout
    assert fila("version").stdout == fila("--version").stdout


@pytest.mark.parametrize(
    ("toml", "text"),
    [
        ("[server]\nlisten_adr = 'x'\n", "listen_adr"),
        ("[scheduler]\nquantum = 0\n", "quantum"),
        ("[server\n", "TOML"),
        ("[tls]\ncert_file = 'x'\n", "encrypt"),
    ],
)
def test_wrong_configuration_is_refused(tmp_path, toml, text):
    """The key, its value and what is allowed."""
    (tmp_path / "fila.toml").write_text(toml, encoding="utf-8")

    code, sentence = refused(working_dir=tmp_path)

    assert code == 2
    assert text in sentence


def test_data_directory_that_cannot_be_is_refused(tmp_path):
    """A file stands where the directory should be."""
    (tmp_path / "data").write_text("not a directory", encoding="utf-8")

    code, sentence = refused("--listen", "127.0.0.1:0", working_dir=tmp_path)

    assert code == 1
    assert "data" in sentence


def test_other_name_of_the_server():
    """`fila-server` is `fila server`."""
    script = Path(sys.executable).with_name("fila-server")

    finished = subprocess.run([script, "--help"], capture_output=True, text=True, check=False, timeout=30)

    assert finished.returncode == 0
    assert finished.stdout.startswith("Usage: fila-server")
