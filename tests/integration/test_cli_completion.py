"""Completion in shells, and suggestions for what was mistyped."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.integration.server_process import ServerProcess
from tests.integration.test_cli import free_port

from fila.cli.group import similar, wanted_colour
from fila.cli.main import main


@pytest.fixture(scope="module")
def addr(tmp_path_factory):
    """Where a broker with three queues is."""
    with ServerProcess(tmp_path_factory.mktemp("broker")) as server:
        address = server.wait_until_ready().address
        for name in ("orders", "orders-late", "mail"):
            assert CliRunner().invoke(main, ["queue", "create", name, "--addr", address]).exit_code == 0
        yield address


def completed(line, **environment):
    """Return what bash offers for a line, with the script that `fila completion bash` prints."""
    words = line.split(" ")
    script = f"""
        eval "$({sys.executable} -m fila completion bash)"
        COMP_WORDS=({" ".join(f"'{word}'" for word in words)})
        COMP_CWORD={len(words) - 1}
        _fila_completion fila
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    finished = subprocess.run(
        ["bash", "--norc", "-c", script],
        env=os.environ | {"PATH": path} | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    # Outside of a completion bash has no word to complete, and says so.
    return finished.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("fila q", ["queue"]),
        ("fila queue in", ["inspect"]),
        ("fila consume --fol", ["--follow"]),
        ("fila completion ", ["bash", "zsh", "fish"]),
        ("fila queue create orders --discipline w", ["wfq"]),
    ],
)
def test_bash_completes_commands_and_options(line, offered):
    """With the script as it is printed."""
    assert completed(line) == offered


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("fila consume o", ["orders", "orders-late"]),
        ("fila enqueue m", ["mail"]),
        ("fila queue inspect orders-", ["orders-late"]),
        ("fila queue delete x", []),
        ("fila queue create o", []),
    ],
)
def test_bash_completes_queues(addr, line, offered):
    """Those that the broker has; a name for a new one is not suggested."""
    assert sorted(completed(line, FILA_ADDR=addr)) == offered


def test_address_of_the_line_is_the_one_asked(addr):
    """--addr beats the environment here too."""
    assert completed(f"fila consume --addr {addr} ma", FILA_ADDR=f"127.0.0.1:{free_port()}") == ["mail"]


def test_no_broker_completes_nothing_at_once():
    """Silently, and before anybody would wonder."""
    began = time.monotonic()

    assert completed("fila consume o", FILA_ADDR=f"127.0.0.1:{free_port()}") == []
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_is_for_its_shell(shell):
    """It names the program and its variable; where the shell is installed, it understands it."""
    script = CliRunner().invoke(main, ["completion", shell]).stdout

    assert f"_FILA_COMPLETE={shell}_complete" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True, timeout=60)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["enqeue", "q", "x"], "There is no command 'enqeue': did you mean `fila enqueue`?"),
        (["Queue"], "There is no command 'Queue': did you mean `fila queue`?"),
        (["queue", "lst"], "There is no command 'lst': did you mean `fila queue list`?"),
        (["queue", "zzz"], "There is no command 'zzz': `fila queue --help` lists them."),
        (["consume", "q", "--folow"], "Did you mean '--follow'?"),
        (["queue", "create", "q", "--discipline", "dr"], "'dr'"),
    ],
)
def test_mistyped_command_or_option_gets_a_suggestion(arguments, sentence):
    """And exit code 2."""
    finished = CliRunner().invoke(main, arguments, prog_name="fila")

    assert finished.exit_code == 2
    assert sentence in finished.stderr


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["consume", "ordres"], "orders"),
        (["enqueue", "maul", "x"], "mail"),
        (["queue", "inspect", "ORDERS"], "orders"),
        (["queue", "delete", "order-late"], "orders-late"),
        (["queue", "purge", "mial"], "mail"),
    ],
)
def test_mistyped_queue_gets_a_suggestion(addr, arguments, meant):
    """In one sentence, with exit code 3; nothing is done to the queue that was meant."""
    finished = CliRunner().invoke(main, [*arguments, "--addr", addr])

    wrong = next(word for word in arguments[1:] if word not in {"inspect", "delete", "purge"})
    assert finished.exit_code == 3
    assert finished.stderr == f"Error: there is no queue '{wrong}': did you mean '{meant}'?\n"


def test_queue_unlike_all_others_gets_none(addr):
    """Rather the command that creates it."""
    finished = CliRunner().invoke(main, ["consume", "invoices", "--addr", addr])

    assert "did you mean" not in finished.stderr
    assert "`fila queue create invoices`" in finished.stderr


def test_likeness_has_a_bound():
    """What is nothing like it is not suggested; case does not matter."""
    assert similar("ordres", ["orders", "mail"]) == "orders"
    assert similar("MAIL", ["orders", "mail"]) == "mail"
    assert similar("x", ["orders", "mail"]) is None


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, None),
        ({"NO_COLOR": ""}, None),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "0"}, None),
        ({"TERM": "dumb"}, False),
    ],
)
def test_colour_is_as_the_environment_wants(environment, wanted):
    """NO_COLOR counts if it is not empty, and before FORCE_COLOR; else the terminal decides."""
    assert wanted_colour(environment) is wanted
