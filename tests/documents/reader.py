"""Somebody who follows a document from its first block to its last, with a checkout, an environment and a broker."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import sys
from itertools import pairwise
from pathlib import Path

from tests.documents.blocks import Block, DocumentError, blocks_of
from tests.documents.terminal import ID, agrees, run_in_terminal
from tests.integration.server_process import ServerProcess

ROOT = Path(__file__).resolve().parents[2]
# Where documents say that the broker is.
SHOWN_ADDRESS = "localhost:5555"
# What a document finds in the directory that it is read in.
IN_CHECKOUT = ("examples", "proto", "bench")


class Reader:
    """Follows documents in a directory of its own. The broker starts where a document starts it, or when first needed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.skipped: list[str] = []
        # The ids that documents show, and those that this run has instead.
        self._ids: dict[str, str] = {}
        self._server: ServerProcess | None = None
        self._address = f"localhost:{_free_port()}"
        (directory / ".venv").symlink_to(sys.prefix)
        for name in IN_CHECKOUT:
            (directory / name).symlink_to(ROOT / name)
        own = {name: value for name, value in os.environ.items() if not name.startswith("FILA_")}
        self._environment = own | {"FILA_ADDR": self._address, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}
        bin_directory = str(Path(sys.executable).parent)
        folders = own.get("PATH", "").split(os.pathsep)
        self._environment["PATH"] = os.pathsep.join(each for each in folders if each != bin_directory)

    def close(self) -> None:
        """End the broker."""
        if self._server is not None:
            self._server.close()

    def follow(self, document: Path) -> None:
        """Try every block of a document in its order; raises AssertionError at the first that is not as shown."""
        blocks = blocks_of(document)
        if not any(_activates(block) for block in blocks):
            # Guides begin where the tutorial ends.
            self._activate()
        for block, after in pairwise([*blocks, None]):
            assert block is not None
            if not block.is_output:
                try:
                    self._try(block, after.text if after is not None and after.is_output else None)
                except AssertionError as error:
                    raise AssertionError(f"{block.place}: {error}") from error
            elif block is blocks[0] or not _has_output(blocks[blocks.index(block) - 1]):
                raise DocumentError(f"{block.place}: this shows the output of nothing: say what tries it")
            elif block.language == "json":
                json.loads(block.text)

    def _try(self, block: Block, shown: str | None) -> None:
        if block.says("not run"):
            return
        if block.says("tested by"):
            _check_tested_by(block)
        elif block.says("file"):
            path = self.directory / block.argument
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._real(block.text), encoding="utf-8")
        elif block.language == "sh":
            self._try_shell(block, shown)
        elif block.language == "python":
            program = self.directory / "program.py"
            program.write_text(self._real(block.text), encoding="utf-8")
            self._compare(block, ".venv/bin/python program.py", shown)
        elif block.language == "toml":
            self._start_with(block.text)

    def _try_shell(self, block: Block, shown: str | None) -> None:
        lines = block.text.replace("\\\n", " ").splitlines()
        words = [shlex.split(line, comments=True) for line in lines]
        command = words[0] if len(words) == 1 else []
        if command == ["make", "run"] or command[:2] in (["fila", "server"], [".venv/bin/fila", "server"]):
            self._start(command[2:], shown)
        elif all(line[:1] == ["make"] for line in words):
            _check_targets(block, [line[1] for line in words])
        elif "grpcurl" in block.text and shutil.which("grpcurl") is None:
            self.skipped.append(f"{block.place}: grpcurl is not installed")
        else:
            self._compare(block, block.text, shown)
            if _activates(block):
                self._activate()

    def _compare(self, block: Block, script: str, shown: str | None) -> None:
        if self._server is None:
            self._start([], None)
        script = self._real(script)
        is_complete = None
        if block.says("ended with Ctrl-C"):
            assert shown is not None, "show what it prints until it is ended"
            before = self._real(shown).partition("^C")[0]
            is_complete = lambda seen: agrees(seen, before)  # noqa: E731 - it is an argument
        seen = run_in_terminal(script, self.directory, self._environment, is_complete=is_complete)
        if block.says("output differs"):
            return
        expected = (shown or "").replace("^C\n", "")
        assert agrees(seen, expected), f"it prints\n{seen}\nand what is shown is\n{expected}"
        self._ids.update(zip(re.findall(ID, expected), re.findall(ID, seen), strict=False))

    def _real(self, text: str) -> str:
        """Put this run's address and ids for those shown."""
        for shown, real in self._ids.items():
            text = text.replace(shown, real)
        return text.replace(SHOWN_ADDRESS, self._address)

    def _start(self, arguments: list[str], shown: str | None) -> None:
        """Start the broker. If it runs, whoever reads has ended it from the keyboard, without a clean stop."""
        if self._server is not None:
            os.kill(self._server.pid, signal.SIGQUIT)
            self._server.wait()
        self._server = ServerProcess(self.directory, *arguments, listen=self._address)
        self._server.wait_until_ready()
        if shown is not None:
            seen = "\n".join(self._server.lines)
            assert agrees(seen, shown), f"the server says\n{seen}\nand what is shown is\n{shown}"

    def _start_with(self, settings: str) -> None:
        """Start another broker with a sample of settings, on a port that nobody has, and stop it."""
        directory = self.directory / "settings"
        directory.mkdir(exist_ok=True)
        # A collector that is not there is found missing at once on a port where nobody can be.
        changed = settings.replace("http://localhost:4317", "http://127.0.0.1:9")
        (directory / "fila.toml").write_text(changed, encoding="utf-8")
        with ServerProcess(directory) as server:
            server.wait_until_ready()
            server.terminate()
            assert server.wait() == 0, server.errors

    def _activate(self) -> None:
        self._environment["PATH"] = f"{self.directory}/.venv/bin{os.pathsep}{self._environment['PATH']}"


def _activates(block: Block) -> bool:
    return block.language == "sh" and ".venv/bin/activate" in block.text


def _has_output(block: Block) -> bool:
    return block.language in {"sh", "python"}


def _check_tested_by(block: Block) -> None:
    path = ROOT / block.argument
    if not path.is_file():
        raise DocumentError(f"{block.place}: there is no {block.argument}")
    document = block.place.partition(":")[0]
    if document not in path.read_text(encoding="utf-8"):
        raise DocumentError(f"{block.place}: {block.argument} does not name {document}")


def _check_targets(block: Block, targets: list[str]) -> None:
    rules = (ROOT / "Makefile").read_text(encoding="utf-8")
    missing = [target for target in targets if not re.search(rf"^{re.escape(target)}:", rules, re.MULTILINE)]
    if missing:
        raise DocumentError(f"{block.place}: the Makefile has no {missing}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
