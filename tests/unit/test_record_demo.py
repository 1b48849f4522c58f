"""The recording of the demo in README: it is the demo's own output, it keeps its shape, and what it shows holds."""

import importlib.util
import re

import pytest
from tests.architecture.sources import ROOT
from tests.unit.demo_frames import END

from fila.demo import result
from fila.demo.text import Canvas, characters

SPEC = importlib.util.spec_from_file_location("record_demo", ROOT / "tools" / "record_demo.py")
record_demo = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(record_demo)

CANVAS = Canvas(80, 1000, colour=False, blocks=True)
OUTPUT = "\n".join(characters(result.lines_of(END, CANVAS, "fila"), CANVAS)).partition(
    record_demo.NEXT_STEPS
)[0]
README = f"# fila\n\n{record_demo.BEGIN}\n```text\nold\n```\n\n{record_demo.END}\nmore\n"


def test_readme_shows_what_the_demo_prints_and_what_is_shown_holds():
    """All but the figures is what this code prints, and the figures in README say what README says."""
    shown = record_demo.recorded((ROOT / "README.md").read_text(encoding="utf-8"))

    assert record_demo.shape(shown) == record_demo.shape(OUTPUT)
    assert record_demo.complaints(shown) == []


def test_recording_goes_between_the_marks_and_nowhere_else():
    """What is written is what is read again."""
    written = record_demo.with_recording(README, OUTPUT)

    assert record_demo.recorded(written) == OUTPUT
    assert written.startswith("# fila\n\n<!-- demo:begin -->\n")
    assert written.endswith("<!-- demo:end -->\n\nmore\n")
    with pytest.raises(ValueError, match="demo:begin"):
        record_demo.with_recording("# fila\n", OUTPUT)
    with pytest.raises(ValueError, match="demo:begin"):
        record_demo.recorded("# fila\n")


def test_shape_masks_figures_and_bars_only():
    """Other figures are the same shape; another word, row or unit of the sentence is not."""
    other = re.sub(r"\d+", "7", OUTPUT).replace("█", "").replace(" ms", " s")

    assert record_demo.shape(other) == record_demo.shape(OUTPUT)
    assert record_demo.shape(OUTPUT.replace("bolt", "dart")) != record_demo.shape(OUTPUT)
    assert record_demo.shape(OUTPUT.replace("longest", "")) != record_demo.shape(OUTPUT)
    assert record_demo.shape(OUTPUT + "another line\n") != record_demo.shape(OUTPUT)


def test_a_run_without_the_difference_is_complained_about():
    """Whatever the reason: it is not recorded, and not claimed."""
    waits = record_demo.median_waits_ms(OUTPUT)
    worse = OUTPUT.replace("  bolt     10 messages         2 ms", "  bolt     10 messages        6.1 s")

    assert list(waits.values()) == [6500.0, 2.0]
    assert record_demo.complaints(OUTPUT) == []
    assert len(record_demo.complaints(worse)) == 1
    with pytest.raises(ValueError, match="no row of bolt"):
        record_demo.complaints("nothing\n")
