"""The comparison says nothing without a source: each line names a test of ours that exists, a document, or a public page."""

import re

import pytest
from tests.architecture.sources import ROOT

TEXT = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")
OTHERS = ("Kafka", "RabbitMQ", "NATS JetStream", "SQS", "BullMQ", "Temporal")
SIDES = {"It can", "It is better", "fila is better"}


def sections():
    """Return the rows of each table, as cells, by the title above it."""
    found = {}
    for section in TEXT.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        lines = [line for line in body.splitlines() if line.startswith("|")][2:]
        found[title] = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return found


SECTIONS = sections()
ROWS = [(title, row) for title, rows in SECTIONS.items() for row in rows]


@pytest.mark.parametrize(("title", "row"), ROWS, ids=lambda value: value if isinstance(value, str) else None)
def test_each_line_names_its_source(title, row):
    """A source is a page on the web, or a file of ours that exists; nothing else is in its cell."""
    sources = [source.strip() for source in row[-1].split(", ")]

    for source in sources:
        if source.startswith("<https://"):
            assert re.fullmatch(r"<https://[\w.-]+\.[a-z]+/[^\s<>]*>", source), source
        else:
            assert (ROOT / source.strip("`")).is_file(), source
            assert re.match(r"`(?:tests|docs)/", source), source


@pytest.mark.parametrize("other", OTHERS)
def test_each_other_is_shown_fairly(other):
    """What it can and where it is better comes with what we do better, and no line is about nothing."""
    (title,) = [title for title in SECTIONS if title.startswith(other)]
    sides = [row[0] for row in SECTIONS[title]]

    assert set(sides) == SIDES
    assert all(row[1] for row in SECTIONS[title])


def test_what_fila_lacks_is_said():
    """Whoever needs replication must not find out later."""
    lacks = " ".join(row[0] for row in SECTIONS["What fila does not"])

    assert "No replication" in lacks
    assert "No TLS" in lacks


def test_no_line_of_ours_rests_on_another_project_alone():
    """Where we say that fila is better, a test or a document of ours shows it."""
    ours = [row for _, row in ROWS if row[0] == "fila is better"]

    assert len(ours) >= len(OTHERS)
    assert [row for row in ours if "`tests/" not in row[-1]] == []
