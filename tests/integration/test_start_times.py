"""How long fila takes to begin: what an import costs a program, and what a user waits for.

Processor time of whole child processes is compared with that of a bare interpreter in the same run, turn by turn, so that a
busy machine slows both; medians, so that one disturbed run does not count.
"""

import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

RUNS = 11
FILA = Path(sys.executable).with_name("fila")

# Every name is asked of `dir` and some are looked up: neither may load what they stand for.
IMPORTS = "import fila, fila.errors, fila.limits; dir(fila); fila.FilaError, fila.__version__"


def cpu_ms(command):
    """Run a command, and return the processor time that it took, user and system."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return 1000 * (usage.ru_utime + usage.ru_stime)


def median_ms_beyond_bare(command):
    """Return how much more a command takes than an interpreter that does nothing."""
    bare = [sys.executable, "-c", "pass"]
    # The first run compiles what has changed.
    cpu_ms(command)
    return statistics.median(cpu_ms(command) - cpu_ms(bare) for _ in range(RUNS))


@pytest.mark.parametrize(
    ("command", "limit_ms"),
    [
        ([sys.executable, "-c", "import fila"], 30),
        ([sys.executable, "-c", IMPORTS], 30),
        ([FILA, "--help"], 200),
        ([FILA, "--version"], 200),
        ([FILA, "queue", "--help"], 200),
    ],
    ids=["import", "names", "help", "version", "subcommand-help"],
)
def test_beginning_is_quick(command, limit_ms):
    """At most 30 ms for the import and 200 ms for the help."""
    took_ms = median_ms_beyond_bare(command)

    assert took_ms <= limit_ms


@pytest.mark.parametrize(
    "statement",
    [
        IMPORTS,
        "import fila.testing, fila.testing.plugin",
        "from fila.cli.main import main; main(['--help'], standalone_mode=False)",
    ],
    ids=["names", "testing", "help"],
)
def test_beginning_loads_nothing_heavy(statement):
    """What takes long is loaded by what needs it: gRPC by the client, the engine by the broker."""
    heavy = "{'grpc', 'google.protobuf', 'rocksdict', 'uvloop', 'opentelemetry', 'fila.client.aio', 'fila.assembly'}"
    code = f"{statement}\nimport sys\nsys.exit(str(loaded) if (loaded := {heavy} & set(sys.modules)) else 0)"

    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stderr


def test_every_public_name_is_there_and_listed():
    """What `fila` says it exports it has, each name once loaded."""
    code = "import fila\nfor name in fila.__all__: getattr(fila, name)\nassert set(fila.__all__) <= set(dir(fila))"

    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stderr
