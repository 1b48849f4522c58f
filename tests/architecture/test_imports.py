"""Who may import whom: the contracts in pyproject.toml, and that they name every part of fila."""

import subprocess
import sys
import tomllib
from pathlib import Path

from tests.architecture.sources import ROOT, SOURCE

# Their contracts are the layers alone: they hold no logic of their own or are imported by nobody.
WITHOUT_CONTRACT = {"__init__", "__main__"}


def test_the_import_contracts_are_kept():
    """Imports point inward, and each library has one home."""
    lint = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert lint.returncode == 0, lint.stdout + lint.stderr


def test_every_part_of_fila_is_in_the_layers():
    """A new package must say where it stands."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = document["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    named = {part.strip(" ()") for layer in layers for part in layer.split("|")}

    parts = {path.stem for path in SOURCE.glob("*.py")} | {
        path.parent.name for path in SOURCE.glob("*/__init__.py")
    }

    assert {f"fila.{part}" for part in parts - WITHOUT_CONTRACT} <= named


def modules_loaded_by(statement: str) -> set[str]:
    """Run a statement in a fresh interpreter and return the names of all modules it loaded."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_importing_fila_loads_no_grpc():
    """A simulation or a Spark executor pays only for what it uses."""
    loaded = modules_loaded_by("import fila, fila.errors, fila.limits, fila.core")

    assert "fila" in loaded
    assert not {"grpc", "google.protobuf", "rocksdict", "opentelemetry", "asyncio"} & loaded


def test_the_client_is_found_by_its_short_name():
    """`from fila import AsyncClient` is what the documentation says."""
    loaded = modules_loaded_by("from fila import AsyncClient\nassert AsyncClient.__name__ == 'AsyncClient'")

    assert "grpc" in loaded


def test_an_unknown_name_is_an_attribute_error():
    """Laziness must not change what Python says."""
    import fila

    assert not hasattr(fila, "no_such_name")
    assert "AsyncClient" in dir(fila)
