"""Functions fit on a screen and modules have one noun; what is longer is listed and may only shrink."""

import ast
import tomllib
from pathlib import Path

from tests.architecture.sources import ROOT, SOURCE, name_of, python_files, tree_of

FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = 500

FILES = python_files(SOURCE, ROOT / "tools")
LISTED = tomllib.loads(Path(__file__).with_name("ratchet.toml").read_text(encoding="utf-8"))


def functions_of(path: Path) -> dict[str, int]:
    """Return the lines of every function in a file by its name, decorators left out."""
    lines = {}

    def walk(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}.{child.name}" if prefix else child.name
                if not isinstance(child, ast.ClassDef):
                    lines[f"{name_of(path)}:{name}"] = (child.end_lineno or 0) - child.lineno + 1
                walk(child, name)
            else:
                walk(child, prefix)

    walk(tree_of(path), "")
    return lines


def assert_only_shrinks(lines_by_name: dict[str, int], listed: dict[str, int], lines_max: int) -> None:
    """Compare what is too long with the list; both directions are errors."""
    long = {name: lines for name, lines in lines_by_name.items() if lines > lines_max}

    grown = {name: lines for name, lines in long.items() if lines > listed.get(name, lines_max)}
    assert grown == {}, f"longer than {lines_max} lines, or than listed: split them"
    slack = {name: long.get(name, 0) for name, lines in listed.items() if long.get(name, 0) < lines}
    assert slack == {}, "shorter than listed: lower or remove their entries in ratchet.toml"


def test_functions_fit_on_a_screen():
    """60 lines, docstring included."""
    lines_by_name = {name: lines for path in FILES for name, lines in functions_of(path).items()}

    assert_only_shrinks(lines_by_name, LISTED["functions"], FUNCTION_LINES_MAX)


def test_modules_have_one_noun():
    """Beyond 500 lines there are two."""
    lines_by_name = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}

    assert_only_shrinks(lines_by_name, LISTED["modules"], MODULE_LINES_MAX)
