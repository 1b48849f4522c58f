"""The core decides and does nothing else: no clock, no chance, no files, no order out of a hash."""

import ast
import textwrap

import pytest
from tests.architecture.sources import SOURCE, name_of, python_files, tree_of

OUR_MODULES = ("fila.core", "fila.errors", "fila.limits")
# Of these none reads, writes or remembers anything.
STANDARD_MODULES = {
    "__future__",
    "array",
    "bisect",
    "collections",
    "collections.abc",
    "dataclasses",
    "enum",
    "heapq",
    "itertools",
    "operator",
    "typing",
}
# Each reaches out of the process, or answers differently in another one.
BANNED_CALLS = {
    "__import__": "import at the top of the module",
    "breakpoint": "debugging stays at home",
    "compile": "the core is data in, data out",
    "eval": "the core is data in, data out",
    "exec": "the core is data in, data out",
    "hash": "differs with PYTHONHASHSEED: derive numbers from what came with the command",
    "id": "differs from run to run: number things in order of arrival",
    "input": "what the core needs comes in a command",
    "open": "files belong to the store",
    "print": "what is to be told is a fact of the outcome",
}
CORE_FILES = python_files(SOURCE / "core")


def banned_imports(tree: ast.Module) -> list[str]:
    """List the imports of `tree` that the core may not have."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            # `from fila import limits` names the module in its list; a relative import stays in the core.
            names = (
                [f"fila.{alias.name}" for alias in node.names]
                if node.module == "fila"
                else [node.module or ""]
            )
            if node.level:
                continue
        else:
            continue
        found += [
            f"line {node.lineno}: import of {name}"
            for name in names
            if name not in STANDARD_MODULES
            and not f"{name}.".startswith(tuple(f"{ours}." for ours in OUR_MODULES))
        ]
    return found


def banned_calls(tree: ast.Module) -> list[str]:
    """List the calls of `tree` that the core may not make."""
    return [
        f"line {node.lineno}: {node.func.id}(): {BANNED_CALLS[node.func.id]}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BANNED_CALLS
    ]


def is_set_type(annotation: ast.expr | None) -> bool:
    """Say whether an annotation is `set`, `frozenset` or one of these with parameters."""
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    return isinstance(annotation, ast.Name) and annotation.id in {"set", "frozenset", "Set", "AbstractSet"}


def last_name(node: ast.expr) -> str | None:
    """Return `x` for both `x` and `anything.x`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


class SetIteration(ast.NodeVisitor):
    """Find where the order of a set could become an order of events."""

    def __init__(self, tree):
        self.found = []
        self._sets = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.AnnAssign) and is_set_type(node.annotation):
                self._sets.add(last_name(node.target))
            elif isinstance(node, ast.arg) and is_set_type(node.annotation):
                self._sets.add(node.arg)
            elif isinstance(node, ast.Assign) and self._is_set(node.value):
                self._sets.update(last_name(target) for target in node.targets)
        self._sets.discard(None)
        self.visit(tree)

    def _is_set(self, node):
        if isinstance(node, ast.Set | ast.SetComp):
            return True
        if isinstance(node, ast.Call) and last_name(node.func) in {"set", "frozenset"}:
            return True
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr | ast.BitXor | ast.Sub):
            return self._is_set(node.left) or self._is_set(node.right)
        return last_name(node) in self._sets

    def _check(self, node):
        if self._is_set(node):
            self.found.append(f"line {node.lineno}: iteration over a set: {ast.unparse(node)}")

    def visit_For(self, node):
        self._check(node.iter)
        self.generic_visit(node)

    def visit_comprehension(self, node):
        self._check(node.iter)
        self.generic_visit(node)

    def visit_Starred(self, node):
        self._check(node.value)
        self.generic_visit(node)

    def visit_Call(self, node):
        if isinstance(node.func, ast.Name) and node.func.id in {
            "list",
            "tuple",
            "iter",
            "enumerate",
            "deque",
            "map",
        }:
            for argument in node.args:
                self._check(argument)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "pop" and not node.args:
            self._check(node.func.value)
        self.generic_visit(node)


def test_there_is_a_core_to_check():
    """An empty list of files would pass everything."""
    assert any(path.name == "scheduler.py" for path in CORE_FILES)


@pytest.mark.parametrize("path", CORE_FILES, ids=name_of)
def test_the_core_is_pure(path):
    """It imports, calls and iterates over nothing that could differ between two runs."""
    tree = tree_of(path)

    assert banned_imports(tree) + banned_calls(tree) + SetIteration(tree).found == []


@pytest.mark.parametrize(
    "code",
    [
        "import time",
        "import asyncio, os",
        "from random import randrange",
        "from uuid import uuid4 as fresh",
        "from fila import storage",
        "from fila.storage.store import Store",
        "import logging.handlers",
        "import fila.corename",
    ],
)
def test_the_check_finds_impure_imports(code):
    """The checker itself is checked."""
    assert banned_imports(ast.parse(code))


@pytest.mark.parametrize("code", ["hash(key)", "x = open('f')", "print(1)", "key = id(self)"])
def test_the_check_finds_impure_calls(code):
    """The checker itself is checked."""
    assert banned_calls(ast.parse(code))


@pytest.mark.parametrize(
    "code",
    [
        "for key in {1, 2}: pass",
        "for key in set(keys): pass",
        "rows = [key for key in frozenset(keys)]",
        "ready = set()\nfor key in ready: pass",
        "def f(ready: set[str]): return list(ready)",
        "class A:\n  def f(self):\n    self.ready: set[str] = set()\n    return tuple(self.ready)",
        "gone = {1}\nleft = [*gone]",
        "gone = {1}\ngone.pop()",
        "gone = {1}\nfor each in gone - other: pass",
    ],
)
def test_the_check_finds_iteration_over_sets(code):
    """The checker itself is checked."""
    assert SetIteration(ast.parse(textwrap.dedent(code))).found


@pytest.mark.parametrize(
    "code",
    [
        "for key in [1, 2]: pass",
        "gone = {1}\nfor each in sorted(gone): pass",
        "gone = {1}\nfound = 1 in gone",
    ],
)
def test_the_check_allows_what_has_an_order(code):
    """Sorting gives an order; asking whether something is in a set needs none."""
    assert SetIteration(ast.parse(code)).found == []
