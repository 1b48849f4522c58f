"""The documents are followed: every command and program in them, in order, against a real broker; what they show is what comes out."""

import subprocess
import sys

import pytest
from tests.architecture.sources import ROOT, tracked_files
from tests.documents.blocks import DocumentError, blocks_of
from tests.documents.reader import Reader
from tests.documents.terminal import agrees

# What is generated shows what its source says; that it is up to date is another test.
GENERATED = {ROOT / "docs" / "reference" / "cli.md": ROOT / "tools" / "generate_reference.py"}
DOCUMENTS = sorted(
    path
    for path in tracked_files()
    if path.suffix == ".md" and path not in GENERATED and "\n```" in path.read_text(encoding="utf-8")
)


@pytest.fixture
def reader(tmp_path):
    """Somebody with a checkout who has read nothing yet."""
    reader = Reader(tmp_path)
    yield reader
    reader.close()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_document_does_what_it_shows(document, reader):
    """Whoever follows a document from the first block to the last sees what it shows."""
    reader.follow(document)

    if reader.skipped:
        pytest.skip("; ".join(reader.skipped))


def test_the_documents_of_a_new_user_are_followed():
    """An empty list would pass everything."""
    names = {path.relative_to(ROOT).as_posix() for path in DOCUMENTS}

    assert {"README.md", "CONTRIBUTING.md", "docs/tutorial.md", "docs/configuration.md"} <= names
    assert len([name for name in names if name.startswith("docs/guides/")]) >= 4


@pytest.mark.parametrize("tool", GENERATED.values(), ids=lambda path: path.name)
def test_a_generated_document_is_up_to_date(tool):
    """What nobody writes by hand is what its source says now."""
    checked = subprocess.run(
        [sys.executable, tool, "--check"], capture_output=True, text=True, timeout=60, check=False
    )

    assert (checked.returncode, checked.stdout) == (0, "")


def written(directory, *parts):
    """Write a document from its parts."""
    path = directory / "sample.md"
    path.write_text("\n".join(parts) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        (("```ruby", "puts 1", "```"), "ruby"),
        (("```", "what is this", "```"), "nobody tries"),
        (("```sh", "ls"), "not closed"),
        (("- point", "  ```sh", "  ls", "  ```"), "indented"),
        (("<!-- block: not run, later -->", "```sh", "ls", "```"), "say why"),
        (("<!-- block: skipped -->", "```sh", "ls", "```"), "no note"),
        (("```ini", "a=1", "```"), "say what tries it"),
    ],
)
def test_a_block_of_unknown_kind_is_refused(tmp_path, parts, says):
    """What nobody tries cannot be in a document unnoticed."""
    with pytest.raises(DocumentError, match=says):
        blocks_of(written(tmp_path, *parts))


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        (("```text", "an output of nothing", "```"), "output of nothing"),
        (("<!-- block: tested by tests/nowhere.py -->", "```text", "x", "```"), "there is no"),
        (("<!-- block: tested by tests/documents/terminal.py -->", "```text", "x", "```"), "does not name"),
        (("```sh", "make nothing-of-the-kind", "```"), "no .'nothing-of-the-kind'"),
        (("```sh", "fila queue create q", "```", "", "```text", "Created queue r.", "```"), "it prints"),
        (("```sh", "fila queue create q", "```"), "it prints"),
        (("```sh", "fila queue create q --no-such-option", "```"), "exit code"),
        (("```python", "raise SystemExit('wrong')", "```"), "exit code"),
    ],
)
def test_a_wrong_block_is_found(tmp_path, reader, parts, says):
    """The check can fail: a wrong command, an output that is not the one shown, one that is not shown."""
    with pytest.raises(AssertionError, match=says):
        reader.follow(written(tmp_path, *parts))


def test_outputs_are_compared_but_for_what_differs_from_run_to_run():
    """Ids, times and addresses may differ, numbers of messages may not; dots stand for lines left out."""
    first, second = (f"01a1f5db-{part}-7000-8000-100000000000" for part in ("cdc1", "cfa8"))

    assert agrees(f"{first} in 0.04 s\n", f"{second} in 1.20 s\n")
    assert agrees("a\nb\nc\nd\n", "a\n...\nd\n")
    assert not agrees("a\nb\nc\n", "a\n...\nd\n")
    assert not agrees("4 messages\n", "5 messages\n")
