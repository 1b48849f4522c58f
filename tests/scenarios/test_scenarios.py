"""The broker behaves as the scenarios in this folder say.

`FILA_REWRITE=1 make test ARGS=tests/scenarios` writes down what it does now instead. Commit such a change only when you
understand every line of it.
"""

import os
from pathlib import Path

import pytest
from tests.scenarios.runner import Block, Scenario, parse, render

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path):
    """What happens is what the file says, in every line."""
    text = path.read_text(encoding="utf-8")
    title, blocks = parse(text)
    scenario = Scenario()

    found = render(title, [Block(block.commands, scenario.run(block.commands)) for block in blocks])

    if os.environ.get("FILA_REWRITE"):
        path.write_text(found, encoding="utf-8")
    else:
        assert found == text


def test_every_scenario_has_a_title_and_an_answer():
    """The first line says which rule it is about, and no file is a list of commands without consequence."""
    assert len(FILES) >= 20
    for path in FILES:
        title, blocks = parse(path.read_text(encoding="utf-8"))
        assert title, path.name
        assert any(block.expected for block in blocks), path.name
