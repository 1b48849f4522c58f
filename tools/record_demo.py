"""Run `fila demo` and put what it prints into README.md: `make record-demo`.

Figures differ from run to run. `--check` compares all but them with a short run, and that what README shows still holds:
first in, first out makes the quiet tenant wait, and fila does not.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from fila.demo.plan import FAIR, FIFO, QUIET
from fila.demo.text import BLOCKS

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
BEGIN, END = "<!-- demo:begin -->\n", "<!-- demo:end -->\n"
# What follows is for whoever ran it, and in README anyway.
NEXT_STEPS = "\nTry next:"
CHECK_SECONDS = 3.0
# A bar far from what is measured (some thousand times) and far from what anybody would doubt.
RATIO_MIN = 20.0
TIMEOUT_SECONDS = 60

_UNITS_MS = {"ms": 1.0, "s": 1000.0}


def run_demo(*arguments: str) -> str:
    """Return what the demo prints where nobody watches, without the next steps."""
    program = Path(sys.executable).parent / "fila"
    run = subprocess.run(
        [program, "demo", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    if run.returncode:
        raise SystemExit(f"`fila demo` ended with {run.returncode}: {run.stderr.strip()}")
    return run.stdout.partition(NEXT_STEPS)[0]


def recorded(readme: str) -> str:
    """Return what README shows. Raises ValueError without the markers."""
    _, begin, rest = readme.partition(BEGIN)
    block, end, _ = rest.partition(END)
    fenced = re.fullmatch(r"\n*```text\n(.*)```\n*", block, re.DOTALL)
    if not begin or not end or fenced is None:
        raise ValueError(f"README.md has no ```text block between {BEGIN.strip()} and {END.strip()}")
    return fenced[1]


def with_recording(readme: str, output: str) -> str:
    """Return README with this output between its markers. Raises ValueError without the markers."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md has no {BEGIN.strip()} and {END.strip()}")
    return f"{before}{begin}\n```text\n{output}```\n\n{end}{after}"


def shape(output: str) -> str:
    """Return all but what differs from run to run: figures, bars, and where lines break because of them."""
    text = re.sub(f"[{BLOCKS}]", "", output)
    text = re.sub(r"\d[\d,.]*\d|\d", "<n>", text)
    text = re.sub(r"(?<=<n>) (ms|s)\b", " <unit>", text)
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))


def median_waits_ms(output: str) -> dict[str, float]:
    """Return the quiet tenant's median wait by the title of the queue, as the table shows it."""
    row = rf"\n  {QUIET} +[\d,]+ messages +([\d.]+) (ms|s) "
    waits = {}
    for discipline in (FIFO, FAIR):
        found = re.search(row, output.partition(f"\n{discipline.title}\n")[2])
        if found is None:
            raise ValueError(f"no row of {QUIET} under {discipline.title!r}")
        waits[discipline.title] = float(found[1]) * _UNITS_MS[found[2]]
    return waits


def complaints(output: str) -> list[str]:
    """Return what does not hold of what the demo is there to show."""
    waits_ms = median_waits_ms(output)
    fifo_ms, fair_ms = waits_ms[FIFO.title], waits_ms[FAIR.title]
    if fifo_ms >= RATIO_MIN * max(1.0, fair_ms):
        return []
    return [f"{QUIET} waited {fifo_ms:g} ms in first in, first out and {fair_ms:g} ms with fila"]


def check() -> list[str]:
    """Return what is wrong with the recording in README."""
    shown, now = recorded(README.read_text(encoding="utf-8")), run_demo("--seconds", str(CHECK_SECONDS))
    wrong = [f"README.md: {each}" for each in complaints(shown)] + [
        f"now: {each}" for each in complaints(now)
    ]
    if shape(shown) != shape(now):
        wrong.append("README.md shows other lines than `fila demo` prints: run `make record-demo`.")
    return wrong


def record() -> list[str]:
    """Run the whole demo and write README, unless the run does not show what it should."""
    output = run_demo()
    wrong = complaints(output)
    if not wrong:
        readme = with_recording(README.read_text(encoding="utf-8"), output)
        README.write_text(readme, encoding="utf-8")
    return wrong


def main() -> int:
    """Record, or with --check only compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="compare with a short run, write nothing")
    arguments = parser.parse_args()
    try:
        wrong = check() if arguments.check else record()
    except ValueError as error:
        wrong = [str(error)]
    for each in wrong:
        print(each)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
