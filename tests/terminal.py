"""A terminal in text: what is on its screen after the characters so far.

It knows the few sequences that fila writes, and refuses the others, so that a mode which nobody resets cannot slip in.
"""

import re

_SEQUENCE = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])")


class Terminal:
    """Rows of characters, a cursor, and what has scrolled away at the top."""

    def __init__(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.scrolled = []
        self._lines = [""]
        self._row = self._column = 0

    @property
    def screen(self):
        """What is seen, without the empty rows at the end."""
        return "\n".join(line.rstrip() for line in self._lines).rstrip("\n")

    @property
    def everything(self):
        """What is seen when scrolling up, too."""
        return "\n".join([*self.scrolled, self.screen])

    def feed(self, text):
        """Take characters as they come from a program; none may be beyond the last column."""
        place = 0
        while place < len(text):
            if text[place] == "\x1b":
                found = _SEQUENCE.match(text, place)
                assert found, f"an unknown sequence: {text[place : place + 10]!r}"
                self._obey(found[2], found[1])
                place = found.end()
                continue
            self._put(text[place])
            place += 1
        return self

    def _put(self, character):
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._column = 0
            self._row += 1
            if self._row == len(self._lines):
                self._lines.append("")
            if len(self._lines) > self.rows:
                self.scrolled.append(self._lines.pop(0).rstrip())
                self._row -= 1
        else:
            assert character.isprintable(), f"a control character: {character!r}"
            assert self._column < self.columns, f"a line longer than {self.columns}: {self._lines[self._row]}"
            line = self._lines[self._row].ljust(self._column)
            self._lines[self._row] = line[: self._column] + character + line[self._column + 1 :]
            self._column += 1

    def _obey(self, letter, argument):
        match letter:
            case "m":
                return
            case "A":
                assert int(argument) <= self._row, "up beyond the first row"
                self._row -= int(argument)
            case "K":
                self._lines[self._row] = self._lines[self._row][: self._column]
            case "J":
                self._lines[self._row] = self._lines[self._row][: self._column]
                del self._lines[self._row + 1 :]
            case "H":
                self._row = self._column = 0
            case _:
                raise AssertionError(f"an unknown sequence: ESC [ {argument}{letter}")
