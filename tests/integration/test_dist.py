"""The packages that `make dist` builds: what is in them, and that they work where nothing else of ours is."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from tests.integration.empty_environment import EmptyEnvironment, closure_of, link_into
from tests.integration.server_process import ServerProcess

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
TIMEOUT_S = 120

# It prints the packages that our code imports anywhere, in functions too, and that cannot be found.
FIND_MISSING = """
import ast, importlib.util, pathlib, fila

def exists(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False

names = set()
for path in pathlib.Path(fila.__file__).parent.rglob("*.py"):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module)
print(*sorted(name for name in names if not exists(name)))
"""

# A program as a user writes it, which prints what it got.
PROGRAM = """
import asyncio, sys
import fila
from fila import AsyncClient, Client

async def main():
    async with AsyncClient(sys.argv[1]) as client:
        await client.create_queue("orders")
        async with client.producer("orders") as producer:
            for number in range(100):
                await producer.send(b"%d" % number)
        got = []
        async for message in client.consume("orders"):
            got.append(int(message.payload))
            await message.ack()
            if len(got) == 100:
                break
    return got == list(range(100))

def without_asyncio():
    with Client(sys.argv[1]) as client:
        client.enqueue("orders", payload=b"last")
        for message in client.consume("orders"):
            message.ack()
            return message.payload == b"last"

print(asyncio.run(main()) and without_asyncio(), fila.__file__)
"""

USERS_TEST = """
import fila

def test_with_a_broker(fila_broker, fila_queue):
    assert fila_broker.is_running and fila_queue and "site-packages" in fila.__file__
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """The folder that `make dist` has built wheel and sdist in; the environment is the one that runs the tests."""
    folder = tmp_path_factory.mktemp("dist")
    stamp = f"{sys.prefix}/.installed-dev"
    command = ["make", "-o", stamp, "dist", f"VENV={sys.prefix}", f"DIST={folder}"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def wheel(packages):
    (wheel,) = packages.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def sdist(packages):
    (sdist,) = packages.glob("*.tar.gz")
    return sdist


@pytest.fixture(scope="module")
def environment(tmp_path_factory, wheel):
    """The wheel in an empty environment."""
    return EmptyEnvironment(tmp_path_factory.mktemp("environment") / "venv", wheel)


@pytest.fixture
def server(tmp_path, environment):
    """The server of the wheel, in a directory of its own."""
    with ServerProcess(tmp_path / "server", command=[environment.command("fila")]) as server:
        yield server.wait_until_ready()


def files_of_fila():
    """Return the names of all files that make fila, as a wheel has them."""
    return {
        path.relative_to(SOURCE).as_posix()
        for path in (SOURCE / "fila").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def test_wheel_has_all_of_fila_and_nothing_else(wheel):
    """The generated code and the mark of typed packages are in it; tests, tools and documents are not."""
    with ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}

    assert names == files_of_fila()
    assert {"fila/py.typed", "fila/wire/v1/service_pb2.py", "fila/wire/v1/service_pb2.pyi"} <= names


def test_sdist_has_what_it_takes_to_work_on_fila(sdist):
    """Sources, contract, tests and documents; what the version control leaves out is not in it."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    assert {f"src/{name}" for name in files_of_fila()} <= names
    wanted = {
        "proto/fila/v1/service.proto",
        "Makefile",
        "constraints.txt",
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
    }
    assert wanted | {"tests/integration/test_dist.py"} <= names
    assert [
        name for name in names if "__pycache__" in name or name.startswith((".venv", "data/", "build/"))
    ] == []


def test_sdist_builds_the_same_wheel(sdist, wheel, tmp_path):
    """Whoever builds from the sdist, as distributions do, gets the wheel that we have tested, to the byte."""
    subprocess.run(["tar", "-xzf", sdist, "-C", tmp_path], check=True)
    (unpacked,) = tmp_path.iterdir()

    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "dist"]
    subprocess.run(build, cwd=unpacked, check=True, capture_output=True)

    again = tmp_path / "dist" / wheel.name
    with ZipFile(wheel) as ours, ZipFile(again) as theirs:
        names = {*ours.namelist(), *theirs.namelist()}
        differing = [name for name in sorted(names) if ours.read(name) != theirs.read(name)]
    assert differing == []
    assert again.read_bytes() == wheel.read_bytes()


def test_declared_requirements_are_all_that_is_needed(environment, tmp_path):
    """All that our code imports is found with them; pytest alone is its user's to bring, for the fixtures."""
    missing = environment.run("python", "-c", FIND_MISSING, cwd=tmp_path).split()

    assert missing == ["pytest"]


def test_declared_requirements_are_all_used():
    """What nobody imports is not asked of users: every package that we declare is one that we load or start."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    declared = {Requirement(text).name for text in document["project"]["dependencies"]}
    module_by_name = {
        "grpcio": "grpc",
        "grpcio-health-checking": "grpc_health",
        "grpcio-reflection": "grpc_reflection",
        "opentelemetry-exporter-otlp-proto-grpc": "opentelemetry.exporter.otlp.proto.grpc",
        "opentelemetry-sdk": "opentelemetry.sdk",
        "protobuf": "google.protobuf",
    }
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (SOURCE / "fila").rglob("*.py"))

    unused = {name for name in declared if f"import {module_by_name.get(name, name)}" not in sources}
    unused = {name for name in unused if f"from {module_by_name.get(name, name)}" not in sources}

    assert unused == set()


def test_wheel_serves_a_program(environment, server, tmp_path):
    """Server and client of the wheel talk to each other, and neither comes from the checkout."""
    (tmp_path / "program.py").write_text(PROGRAM)

    right, where = environment.run("python", "program.py", server.address, cwd=tmp_path).split()

    assert right == "True"
    assert Path(where).is_relative_to(environment.site)


def test_wheel_has_the_command_line(environment, server, tmp_path):
    """The commands of the walk-through, as a user types them."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("FILA_")}

    def fila(*arguments):
        return environment.run("fila", *arguments, cwd=tmp_path, env={**own, "FILA_ADDR": server.address})

    fila("queue", "create", "orders")
    fila("enqueue", "orders", "hello", "--key", "acme")

    assert fila("consume", "orders", "--count", "1") == "hello\n"
    assert fila("--version").startswith("fila ")
    assert "Usage: fila-server" in environment.run("fila-server", "--help", cwd=tmp_path)


@pytest.fixture
def users_programs(tmp_path):
    """Programs as users write them, away from the checkout, judged as strictly as pyright can."""
    shutil.copytree(ROOT / "tests" / "typing", tmp_path / "programs")
    (tmp_path / "programs" / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    return tmp_path / "programs"


@pytest.mark.parametrize(
    "checker",
    [["mypy", "--strict", "--cache-dir=.cache", "--python-executable"], ["pyright", "--pythonpath"]],
    ids=["mypy", "pyright"],
)
def test_wheel_is_typed_for_users(environment, users_programs, checker):
    """Both checkers find our types in the wheel, and nothing to say of programs that are right."""
    name, *options = checker
    command = [Path(sys.executable).with_name(name), *options, environment.python, "."]

    judged = subprocess.run(command, cwd=users_programs, capture_output=True, text=True, check=False)
    (users_programs / "wrong.py").write_text("from fila import NewMessage\n\nNewMessage('text')\n")
    wrong = subprocess.run(command, cwd=users_programs, capture_output=True, text=True, check=False)

    assert judged.returncode == 0, judged.stdout + judged.stderr
    assert wrong.returncode == 1, wrong.stdout + wrong.stderr
    assert "bytes" in wrong.stdout


def test_wheel_has_the_demo(environment, tmp_path):
    """It needs no server and no file of the checkout."""
    printed = environment.run("fila", "demo", "--seconds", "1", "--json", cwd=tmp_path, timeout=TIMEOUT_S)

    assert json.loads(printed)


def test_wheel_brings_the_fixtures_to_pytest(environment, tmp_path):
    """Once pytest is there too, the plugin is found by its entry point, with warnings as errors."""
    link_into(tmp_path / "pytest", closure_of([Requirement("pytest")]))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "test_mine.py").write_text(USERS_TEST)

    printed = environment.run(
        "python", "-m", "pytest", "-q", "-W", "error",
        cwd=tmp_path / "mine", env={**os.environ, "PYTHONPATH": str(tmp_path / "pytest")},
    )  # fmt: skip

    assert "1 passed" in printed
