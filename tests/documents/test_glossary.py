"""Each word stands once: what documents put in italics as a word of ours is in the glossary."""

import re

import pytest
from tests.architecture.sources import ROOT

DOCS = ROOT / "docs"
WORDS = set(
    re.findall(r"^\| ([a-z][a-z -]*) \|", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
)


@pytest.mark.parametrize(
    "name", ["docs/concepts.md", "docs/tutorial.md", "docs/guides/producers.md", "README.md"]
)
def test_words_in_italics_are_in_the_glossary(name):
    """Whoever meets a word for the first time finds what it means."""
    text = (ROOT / name).read_text(encoding="utf-8")
    used = set(re.findall(r"(?<!\*)\*([a-z][a-z -]*)\*(?!\*)", text))

    assert used
    assert used - WORDS == set()


def test_the_glossary_has_words():
    """An empty glossary would fail nobody above."""
    assert {"fairness key", "lease", "ack"} <= WORDS
    assert len(WORDS) > 40
