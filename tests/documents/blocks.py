"""The fenced blocks of our documents: where they stand, what they are, and what the reader is told about them.

Blocks are in plain Markdown. What is special about one stands in a comment on the line before its fence:

- `<!-- block: file NAME -->`: the reader saves it under this name.
- `<!-- block: ended with Ctrl-C -->`: a command that goes on until the reader interrupts it.
- `<!-- block: output differs, WHY -->`: it is run, and its output is not compared.
- `<!-- block: tested by PATH -->`: a test of its own tries it.
- `<!-- block: not run, WHY -->`: nobody tries it.
"""

import re
from dataclasses import dataclass
from pathlib import Path

LANGUAGES = {"sh", "python", "toml", "json", "text", "ini", "{eval-rst}", "{toctree}"}
OUTPUT_LANGUAGES = {"text", "json"}
REASON_CHARACTERS_MIN = 15

_FENCE = re.compile(r"^```(.*)$")
_NOTE = re.compile(r"^<!-- block: (.+) -->$")
_NOTES = re.compile(r"file \S+|ended with Ctrl-C|output differs, .+|tested by \S+|not run, .+")
# What `make demo` prints: written by tools/record_demo.py between these marks.
_RECORDED = "<!-- demo:begin -->"


class DocumentError(AssertionError):
    """A block that nobody would try, or that cannot be read."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block, with what the comment before it says."""

    place: str
    language: str
    text: str
    note: str

    def says(self, what: str) -> bool:
        """Whether the comment begins so."""
        return self.note.startswith(what)

    @property
    def argument(self) -> str:
        """The name or reason in the comment."""
        kind = next(
            kind for kind in ("file ", "tested by ", "not run, ", "output differs, ") if self.says(kind)
        )
        return self.note.removeprefix(kind)

    @property
    def is_output(self) -> bool:
        """Whether it shows what the block before it prints."""
        return self.language in OUTPUT_LANGUAGES and not self.note


def blocks_of(path: Path) -> list[Block]:
    """Return a document's blocks in order; raises DocumentError for one whose kind is not known."""
    found: list[Block] = []
    lines = path.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        fence = _FENCE.match(lines[number])
        place = f"{path.name}:{number + 1}"
        if not fence:
            if lines[number].lstrip().startswith("```"):
                raise DocumentError(f"{place}: an indented fence is not tried: put it at the margin")
            number += 1
            continue
        try:
            end = lines.index("```", number + 1)
        except ValueError:
            raise DocumentError(f"{place}: this fence is not closed") from None
        text = "".join(line + "\n" for line in lines[number + 1 : end])
        found.append(_checked(Block(place, fence[1], text, _note(lines, number))))
        number = end + 1
    return found


def _note(lines: list[str], number: int) -> str:
    above = [line for line in lines[:number] if line]
    if above[-1:] == [_RECORDED]:
        return "tested by tools/record_demo.py"
    note = _NOTE.match(lines[number - 1]) if number else None
    return note[1] if note else ""


def _checked(block: Block) -> Block:
    if block.language not in LANGUAGES:
        raise DocumentError(f"{block.place}: nobody tries blocks of the language {block.language!r}")
    if block.note and not _NOTES.fullmatch(block.note):
        raise DocumentError(f"{block.place}: {block.note!r} is no note that is known")
    if block.says("not run") or block.says("output differs"):
        if len(block.argument) < REASON_CHARACTERS_MIN:
            raise DocumentError(f"{block.place}: say why it is not tried")
    elif block.language == "ini" and not block.note:
        raise DocumentError(f"{block.place}: say what tries it")
    return block
