"""Many messages at once: lines and JSON lines into a queue, out of one queue and into another, and lines that are wrong."""

import asyncio
import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.integration.server_process import ServerProcess

from fila import limits
from fila.cli.enqueue import Loading
from fila.cli.lines import Draft, LineError, json_object, plain
from fila.cli.main import main
from fila.errors import LimitError


@pytest.fixture(scope="module")
def addr(tmp_path_factory):
    """Where a broker is."""
    with ServerProcess(tmp_path_factory.mktemp("broker")) as server:
        yield server.wait_until_ready().address


@pytest.fixture
def fila(addr):
    """Run commands in this process, against the broker."""

    def run(*arguments, input_bytes=None):
        return CliRunner().invoke(main, list(map(str, arguments)), input=input_bytes, env={"FILA_ADDR": addr})

    return run


@pytest.fixture
def orders(fila, request):
    """A queue of one's own."""
    name = re.sub(r"\W+", "_", request.node.name)
    assert fila("queue", "create", name).exit_code == 0
    return name


def messages(fila, queue):
    """Look at a queue, in the order of its offsets."""
    lines = fila("consume", queue, "--json").stdout.splitlines()
    return sorted(map(json.loads, lines), key=lambda message: message["offset"])


def test_each_line_is_a_message(fila, orders):
    """Without its end, be it that of Unix or of Windows; the last needs none; empty lines are none."""
    finished = fila("enqueue", orders, "--lines", "--key", "acme", input_bytes=b"one\r\n\n two \nthree")

    assert json.loads(finished.stdout) == {"queue": orders, "enqueued": 3}
    found = messages(fila, orders)
    assert [message["payload"] for message in found] == ["one", " two ", "three"]
    assert {message["fairness_key"] for message in found} == {"acme"}


def test_lines_that_are_no_text_stay_what_they_are(fila, orders):
    """Bytes in, bytes out."""
    fila("enqueue", orders, "--lines", input_bytes=b"\xff\x00\xfe\nx\n")

    assert fila("consume", orders).stdout_bytes == b"\xff\x00\xfe\nx\n"


def test_json_lines_say_all_of_a_message(fila, orders):
    """What a line does not say is as the options say."""
    lines = [
        {"payload": "höllo", "headers": {"a": "1"}, "key": "acme", "weight": 3, "cost": 2},
        {"payload_base64": base64.b64encode(b"\xff").decode(), "fairness_key": "bolt"},
        {"payload": ""},
    ]
    text = "\n".join(map(json.dumps, lines)).encode()
    finished = fila("enqueue", orders, "--jsonl", "--key", "rest", "--header", "b=2", input_bytes=text)

    assert json.loads(finished.stdout)["enqueued"] == 3
    first, second, third = messages(fila, orders)
    assert (first["payload"], first["headers"], first["weight"]) == ("höllo", {"a": "1", "b": "2"}, 3)
    assert (second["payload_base64"], second["fairness_key"]) == ("/w==", "bolt")
    assert (third["payload"], third["fairness_key"], third["headers"]) == ("", "rest", {"b": "2"})


def test_what_consume_prints_enqueue_takes(addr, fila, orders, tmp_path):
    """A queue is backed up and copied with a pipe."""
    sent = [
        {"payload": f"m{number}", "headers": {"n": str(number)}, "fairness_key": f"k{number % 3}"}
        for number in range(500)
    ]
    fila("enqueue", orders, "--jsonl", input_bytes="\n".join(map(json.dumps, sent)).encode())
    fila("queue", "create", f"{orders}_copy")
    program = f"{sys.executable} -m fila"
    script = f"{program} consume {orders} --json --addr {addr} | {program} enqueue {orders}_copy --jsonl --addr {addr}"
    finished = subprocess.run(["bash", "-c", script], capture_output=True, check=True, timeout=60)

    assert json.loads(finished.stdout)["enqueued"] == 500
    copied = messages(fila, f"{orders}_copy")
    wanted = sorted(json.dumps(message, sort_keys=True) for message in sent)
    assert wanted == sorted(
        json.dumps({name: message[name] for name in sent[0]}, sort_keys=True) for message in copied
    )
    assert json.loads(fila("queue", "inspect", orders).stdout)["waiting"] == 500


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "is no JSON"),
        ("[1]", "is no JSON object"),
        ("{}", "needs one of payload and payload_base64"),
        ('{"payload": "a", "payload_base64": ""}', "needs one of"),
        ('{"payload": 1}', "has a payload that is no text"),
        ('{"payload_base64": "%"}', "has a payload_base64 that is no base64"),
        ('{"payload": "a", "colour": 1}', "has 'colour', which is none of payload, "),
        ('{"payload": "a", "weight": 0}', "has weight 0, which is not a whole number from 1 to 1,000,000"),
        ('{"payload": "a", "weight": true}', "has weight true"),
        ('{"payload": "a", "cost": "2"}', 'has cost "2"'),
        ('{"payload": "a", "key": 7}', "has a key that is no text"),
        ('{"payload": "a", "headers": {"n": 1}}', "has a header 'n' that is no text"),
        ('{"payload": "a", "headers": ["n"]}', "has headers that are no object"),
        ('{"payload": "\\ud800"}', "has half a character in payload"),
    ],
)
def test_line_that_is_no_message_is_named(fila, orders, line, reason, tmp_path):
    """With its number and why; what stood before it is in the queue, what comes after is not."""
    path = tmp_path / "my orders.jsonl"
    path.write_text(
        f'{{"payload": "1"}}\n\n{{"payload": "2"}}\n{line}\n{{"payload": "5"}}\n', encoding="utf-8"
    )

    finished = fila("enqueue", orders, "--jsonl", "--file", path)

    assert finished.exit_code == 2
    assert json.loads(finished.stdout) == {"queue": orders, "enqueued": 2}
    (sentence,) = finished.stderr.splitlines()
    assert sentence.startswith(f"Error: line 4 of {path} {reason}")
    assert sentence.endswith(
        f"2 messages were enqueued, none from it on: mend it, and go on with `tail -n +4 '{path}'`."
    )
    assert [message["payload"] for message in messages(fila, orders)] == ["1", "2"]


def test_line_that_the_broker_would_not_take_is_named(fila, orders):
    """A fairness key that is too long, say; the reason is the client's own."""
    lines = ['{"payload": "1"}', json.dumps({"payload": "2", "key": "k" * 300}), '{"payload": "3"}']

    finished = fila("enqueue", orders, "--jsonl", input_bytes="\n".join(lines).encode())

    assert finished.exit_code == 2
    assert finished.stderr.startswith("Error: line 2 of standard input was not taken: ")
    assert "1 message was enqueued" in finished.stderr
    assert [message["payload"] for message in messages(fila, orders)] == ["1"]


def test_line_without_end_is_refused_in_bounded_memory(fila, orders):
    """It is not read to its end first."""
    finished = fila("enqueue", orders, "--lines", input_bytes=b"x" * (2 * limits.LINE_BYTES_MAX))

    assert finished.exit_code == 2
    assert "line 1 of standard input is longer than" in finished.stderr
    assert json.loads(fila("queue", "inspect", orders).stdout)["waiting"] == 0


def test_endless_line_is_refused(addr, orders):
    """What has no line end anywhere would fill the memory."""
    command = [sys.executable, "-m", "fila", "enqueue", orders, "--lines", "--addr", addr]
    with Path("/dev/zero").open("rb") as zeros:
        finished = subprocess.run(command, stdin=zeros, capture_output=True, check=False, timeout=60)

    assert finished.returncode == 2
    assert b"line 1 of standard input is longer than" in finished.stderr


def test_nothing_is_no_message(addr, orders):
    """An empty input is no error."""
    command = [sys.executable, "-m", "fila", "enqueue", orders, "--lines", "--addr", addr]
    finished = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=60)

    assert json.loads(finished.stdout) == {"queue": orders, "enqueued": 0}


def test_standard_input_is_left_as_it_was(addr, orders):
    """It is shared with whoever runs the command, who does not expect reads that do not wait."""
    ours, theirs = os.pipe()
    try:
        os.write(theirs, b"x\n")
        os.close(theirs)
        command = [sys.executable, "-m", "fila", "enqueue", orders, "--lines", "--addr", addr]
        finished = subprocess.run(command, stdin=ours, capture_output=True, check=True, timeout=60)

        assert json.loads(finished.stdout)["enqueued"] == 1
        assert os.get_blocking(ours)
    finally:
        os.close(ours)


class Answer:
    """What became of a line: None, or why it was not taken."""

    done = True

    def __init__(self, error=None):
        self._error = error

    def __await__(self):
        if self._error is not None:
            raise self._error
        return "id"
        yield


def test_line_in_the_middle_that_is_refused_is_the_one_named(capsys):
    """What the broker took of the lines after it is counted, and said."""
    loading = Loading("orders", "lines.txt", plain, Draft())
    answers = [Answer(), Answer(LimitError("the disk is full")), Answer(), Answer(LimitError("still"))]
    loading._sent.extend(enumerate(answers, start=11))

    asyncio.run(loading._look())
    with pytest.raises(SystemExit) as ended:
        loading._refuse(*loading._failed, "lines.txt")

    assert ended.value.code == 5
    assert capsys.readouterr().err == (
        "Error: line 12 of lines.txt was not taken: the disk is full. 2 messages were enqueued, "
        "1 of them from lines after it.\n"
    )


def test_lines_for_a_queue_that_is_not_there(fila, orders):
    """Nothing is printed as if it had worked, and a similar name is suggested."""
    finished = fila("enqueue", orders[:-1], "--lines", input_bytes=b"x\n")

    assert finished.exit_code == 3
    assert finished.stdout_bytes == b""
    assert finished.stderr == f"Error: there is no queue '{orders[:-1]}': did you mean '{orders}'?\n"


def test_broker_that_vanishes_under_a_load_says_how_far_it_came(tmp_path):
    """What it had confirmed is counted, and the rest is said to be open."""
    with ServerProcess(tmp_path / "broker") as server:
        address = server.wait_until_ready().address
        fila = [sys.executable, "-m", "fila"]
        subprocess.run(
            [*fila, "queue", "create", "orders", "--addr", address], check=True, capture_output=True
        )
        follow = [*fila, "consume", "orders", "--follow", "--addr", address]
        load = [*fila, "enqueue", "orders", "--lines", "--addr", address]
        with (
            subprocess.Popen(follow, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as following,
            subprocess.Popen(
                load, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            ) as loading,
        ):
            loading.stdin.write(b"first\n")
            loading.stdin.flush()
            assert following.stdout.readline() == b"first\n"
            server.kill()
            told, errors = loading.communicate(b"second\n", timeout=60)
            following.kill()

    assert loading.returncode == 6
    assert json.loads(told) == {"queue": "orders", "enqueued": 1}
    assert len(errors.splitlines()) == 1
    assert address.encode() in errors


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["q"], "Give either a PAYLOAD or --file"),
        (["q", "x", "--file", "-"], "Give either a PAYLOAD or --file"),
        (["q", "x", "--lines"], "leave PAYLOAD out"),
        (["q", "--lines", "--jsonl"], "either --lines or --jsonl"),
        (["q", "--file", "no-such-file"], "does not exist"),
        (["q", "x", "--header", "=x"], "NAME=VALUE"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_sent(fila, arguments, text):
    """Exit code 2, and a sentence that says what to give."""
    finished = fila("enqueue", *arguments)

    assert (finished.exit_code, finished.stdout_bytes) == (2, b"")
    assert text in finished.stderr


def test_dash_is_standard_input(fila, orders):
    """As a payload and as a file."""
    fila("enqueue", orders, "-", input_bytes=b"one\ntwo\n")
    fila("enqueue", orders, "--lines", "-", input_bytes=b"three\n")

    assert [message["payload"] for message in messages(fila, orders)] == ["one\ntwo\n", "three"]


def test_line_of_a_message_too_long_is_refused():
    """The bound is that of a message."""
    assert plain(b"x", Draft(weight=2)) == Draft(b"x", weight=2)
    with pytest.raises(LineError, match="is longer than"):
        plain(b"x" * (limits.BODY_BYTES_MAX + 1), Draft())


def test_object_beats_what_was_given_for_all():
    """Header by header."""
    given = Draft(b"", {"a": "1", "b": "1"}, "k", 2, 3)

    assert json_object(b'{"payload": "x", "headers": {"a": "2"}, "weight": 5}', given) == Draft(
        b"x", {"a": "2", "b": "1"}, "k", 5, 3
    )


def test_look_is_bounded(fila, orders):
    """It keeps messages from others: so many, and not more, whether one asks for them or not."""
    most = limits.LOOK_MESSAGES_MAX
    fila("enqueue", orders, "--lines", input_bytes=b"x\n" * (most + 1))

    refused = fila("consume", orders, "--count", most + 1)
    stopped = fila("consume", orders)
    taken = fila("consume", orders, "--ack")

    assert (refused.exit_code, refused.stdout_bytes) == (2, b"")
    assert f"at most {most:,} messages" in refused.stderr
    assert (stopped.exit_code, stopped.stdout_bytes.count(b"x\n")) == (5, most)
    assert "--ack" in stopped.stderr
    assert (taken.exit_code, taken.stdout_bytes.count(b"x\n")) == (0, most + 1)


def test_look_keeps_its_leases(fila, orders):
    """A message that is looked at for longer than its visibility timeout is shown once, and no attempt is counted."""
    name = f"{orders}_short"
    fila("queue", "create", name, "--visibility-timeout", "1000")
    fila("enqueue", name, "x")

    looked = fila("consume", name, "--wait", "2.5")

    assert looked.stdout_bytes == b"x\n"
    (message,) = messages(fila, name)
    assert message["attempt_count"] == 0


def test_what_somebody_else_works_on_is_not_waited_for(addr, fila, orders):
    """It may take for ever: the command ends, with nothing."""
    fila("enqueue", orders, "x")
    command = [sys.executable, "-m", "fila", "consume", orders, "--follow", "--addr", addr]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as holder:
        assert holder.stdout.readline() == b"x\n"
        looked = fila("consume", orders)
        holder.kill()

    assert (looked.exit_code, looked.stdout_bytes) == (0, b"")
