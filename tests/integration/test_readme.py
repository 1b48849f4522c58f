"""The README is run: every command in it, against a real server, and what it shows is what comes out.

A ```sh block runs in a terminal; the ```text block behind it, if there is one, is what it must print. Ids, times, paths and
durations differ from run to run: they must have the same form.
"""

import os
import pty
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.integration.server_process import ServerProcess

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TIMEOUT_S = 60

ID = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"
# What may differ, and what stands for it when texts are compared.
MASKS = [
    (ID, "<id>"),
    (r"\d{4}-\d\d-\d\dT[\d:]+\.\d+Z", "<time>"),
    (r'"lease_epoch": "\d+"', '"lease_epoch": "<epoch>"'),
    (r"in \d+\.\d\d s", "in <seconds> s"),
    (r"data in \S+", "data in <directory>"),
    (r"127\.0\.0\.1:\d+", "<address>"),
]


class Block(NamedTuple):
    """A fenced block: its language, its text, and the output that is shown behind it."""

    language: str
    text: str
    output: str | None


def blocks():
    """Return the fenced blocks of the README; a ```text block belongs to the one before it."""
    found = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert len(found) == README.count("\n```") / 2, "a fence without a language, or one that is not closed"
    return [
        Block(language, text, after[1] if after[0] == "text" else None)
        for (language, text), after in pairwise([*found, ("", "")])
        if language != "text"
    ]


BLOCKS = blocks()
MAKE = [block for block in BLOCKS if block.language == "sh" and block.text.startswith("make ")]
SHELL = [block for block in BLOCKS if block.language == "sh" and block not in MAKE]


def only(language):
    """Return the one block of a language."""
    (block,) = [block for block in BLOCKS if block.language == language]
    return block


def masked(text):
    """Replace what differs from run to run."""
    for pattern, mark in MASKS:
        text = re.sub(pattern, mark, text)
    return text


def run_in_terminal(script, directory, environment):
    """Run a script of the shell as someone at a terminal would, and return what they see."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["bash", "-eu", "-o", "pipefail", "-c", script],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    try:
        while chunk := read(ours):
            seen += chunk
        code = process.wait(TIMEOUT_S)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    text = seen.decode().replace("\r\n", "\n")
    assert code == 0, text
    return text


def read(terminal):
    """Return what comes next from a terminal, nothing at its end."""
    try:
        return os.read(terminal, 65_536)
    except OSError:
        # How Linux says that the other side is closed.
        return b""


class Reader:
    """Somebody who follows the README: a broker from `make run`, and a checkout with its .venv."""

    def __init__(self, directory, server):
        self.directory = directory
        self.server = server
        # The ids that the README shows, and those that this run has instead.
        self._ids = {}
        own = {name: value for name, value in os.environ.items() if not name.startswith("FILA_")}
        self.environment = own | {"FILA_ADDR": server.address}

    def run(self, block):
        """Run a block and compare what it prints."""
        script = block.text.replace("localhost:5555", self.server.address)
        for shown, real in self._ids.items():
            script = script.replace(shown, real)
        seen = run_in_terminal(script, self.directory, self.environment)
        assert block.output is not None, "show what it prints"
        assert masked(seen) == masked(block.output)
        self._ids.update(zip(re.findall(ID, block.output), re.findall(ID, seen), strict=True))


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """Follow the README from its beginning, block by block."""
    directory = tmp_path_factory.mktemp("checkout")
    (directory / ".venv").symlink_to(sys.prefix)
    with ServerProcess(directory) as server:
        yield Reader(directory, server.wait_until_ready())


def test_make_run_and_make_test_are_shown_and_are_targets():
    """The two commands of the README do what they say: start the broker, run the tests."""
    shown = [block.text.strip() for block in MAKE]
    rules = (ROOT / "Makefile").read_text(encoding="utf-8")

    assert shown == ["make run", "make test"]
    assert re.search(r"^run:.*\n\t\$\(BIN\)/fila server", rules, re.MULTILINE)
    assert re.search(r"^test:.*\n\t\$\(BIN\)/python -m pytest", rules, re.MULTILINE)


def test_the_server_says_what_the_readme_shows_and_stops_as_it_says(tmp_path):
    """Three lines at the start, and exit code 0 after SIGTERM."""
    shown = README.partition("makes `.venv`")[2].partition("```text\n")[2].partition("```")[0]
    with ServerProcess(tmp_path) as server:
        server.wait_until_ready()
        started = list(server.lines)
        server.terminate()
        code = server.wait()

    assert masked("\n".join(started) + "\n") == masked(shown)
    assert code == 0


@pytest.mark.parametrize("block", SHELL, ids=lambda block: block.text.split("\n")[0][:60])
def test_every_command_does_what_is_shown(reader, block):
    """What the README prints is what the terminal prints."""
    if "grpcurl" in block.text and shutil.which("grpcurl") is None:
        pytest.skip(
            "grpcurl is not installed: this part of the README is not tried (its calls are still checked)"
        )

    reader.run(block)


def test_the_program_runs(reader):
    """The Python block prints the message that it sent."""
    code = only("python").text.replace("localhost:5555", reader.server.address)

    seen = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )

    assert (seen.returncode, seen.stderr) == (0, "")
    assert seen.stdout == "acme b'hello'\n"


def test_the_sample_configuration_starts_a_server(tmp_path):
    """The sample is taken as it stands, but for the address: another broker may have the port."""
    sample = only("toml").text
    changed = sample.replace('"0.0.0.0:5555"', '"127.0.0.1:0"').replace(
        '"http://localhost:4317"', '"http://127.0.0.1:9"'
    )
    assert changed.count("127.0.0.1") == 2
    (tmp_path / "fila.toml").write_text(changed)

    with ServerProcess(tmp_path, listen=None) as server:
        server.wait_until_ready()
        server.terminate()

        assert server.wait() == 0


def test_every_other_block_is_known():
    """A block in a language that nobody runs would be shown untested."""
    assert {block.language for block in BLOCKS} == {"sh", "python", "toml"}
