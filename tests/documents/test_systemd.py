"""The unit in docs/guides/systemd.md is one that systemd takes, and its command is one that runs and stops in time."""

import configparser
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.architecture.sources import ROOT
from tests.documents.blocks import blocks_of

from fila import limits

(BLOCK,) = [block for block in blocks_of(ROOT / "docs" / "guides" / "systemd.md") if block.language == "ini"]
SHOWN_PREFIX = "/opt/fila/bin"
TIMEOUT_S = 60


def service():
    """Return the [Service] section."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    # Its keys are written as they are read.
    unit.optionxform = str
    unit.read_string(BLOCK.text)
    return unit["Service"]


def bin_directory():
    """Return where the environment of this run has its programs."""
    return str(Path(sys.executable).parent)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_unit(tmp_path):
    """No key is unknown and no value is wrong."""
    unit = tmp_path / "fila.service"
    unit.write_text(BLOCK.text.replace(SHOWN_PREFIX, bin_directory()), encoding="utf-8")

    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )

    # Other units of this machine may have faults of their own.
    assert [line for line in checked.stderr.splitlines() if "fila" in line] == []


def test_the_command_of_the_unit_runs_and_stops(tmp_path):
    """ExecStart is a console script of ours with options that it takes; SIGTERM ends it with 0."""
    words = shlex.split(service()["ExecStart"])
    assert words[0].startswith(SHOWN_PREFIX)
    directory = service()["WorkingDirectory"]
    arguments = [str(tmp_path / "data") if word == directory else word for word in words[1:]]
    assert arguments != words[1:]
    own = {name: value for name, value in os.environ.items() if not name.startswith("FILA_")}

    server = subprocess.Popen(
        [words[0].replace(SHOWN_PREFIX, bin_directory()), *arguments],
        cwd=tmp_path,
        env=own | {"FILA_LISTEN_ADDR": "127.0.0.1:0"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        first = server.stdout.readline()
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=TIMEOUT_S)
    finally:
        server.kill()
        server.communicate()

    assert "listens on" in first
    assert server.returncode == 0
    assert (tmp_path / "data").is_dir()


def test_the_unit_waits_longer_than_a_stop_takes():
    """A broker that is still letting its clients finish is not killed."""
    assert int(service()["TimeoutStopSec"]) * 1000 > 2 * limits.DRAIN_TIMEOUT_MS


def test_the_state_directory_is_the_one_that_the_command_uses():
    """What the unit may write is where the broker writes."""
    assert service()["WorkingDirectory"] == f"/var/lib/{service()['StateDirectory']}"


def test_the_program_of_the_unit_is_installed_by_the_wheel():
    """The script's name is the project's."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]

    assert Path(shlex.split(service()["ExecStart"])[0]).name in scripts
