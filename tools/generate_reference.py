"""Generate docs/reference/cli.md from the help of the commands: what `--help` says, in one page."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from fila.cli.main import main as program

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "docs" / "reference" / "cli.md"
# As wide as a page shows without scrolling.
WIDTH = 96

HEAD = """\
# Command line

Made from the help of the commands by `make reference`: do not edit. `fila COMMAND --help` says the same.

Where standard output is a terminal, commands print tables; elsewhere, and with `--json`, they print JSON. `fila consume` prints
payloads unless `--json` is given. What went wrong is one sentence on standard error.

## Exit codes

| Code | Meaning |
| --- | --- |
| 0 | done |
| 1 | failed, or a check of `fila doctor` did |
| 2 | wrong usage or configuration |
| 3 | the queue or message is not there |
| 4 | the queue exists already |
| 5 | a limit is reached |
| 6 | the broker cannot be reached, or stops |
| 129, 130, 143 | ended by SIGHUP, Ctrl-C or SIGTERM; no lease is left behind |

## Environment

| Variable | Meaning |
| --- | --- |
| `FILA_ADDR` | where the broker is: `--addr` |
| `FILA_CA_FILE` | whose certificates to trust over TLS: `--ca-file` |
| `NO_COLOR` | if set, no colours |
| `FORCE_COLOR` | if set and not 0, colours also where there is no terminal |

The settings of `fila server` have variables of their own: [configuration](../configuration.md#environment).
"""


def commands(command: click.Command, parent: click.Context | None, name: str) -> Iterator[click.Context]:
    """Yield a context for the command, then for those below it."""
    context = click.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        **command.context_settings,
    )
    yield context
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            yield from commands(found, context, each)


def generate() -> str:
    """Return the page."""
    pages = [
        f"## {context.command_path}\n\n```text\n{context.get_help()}\n```\n"
        for context in commands(program, None, "fila")
    ]
    return "\n".join([HEAD, *pages])


def main() -> int:
    """Write the page, or with --check only compare it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="compare with the committed page, write nothing")
    arguments = parser.parse_args()

    page = generate()
    same = OUTPUT.exists() and OUTPUT.read_text(encoding="utf-8") == page
    if arguments.check:
        if not same:
            print(f"{OUTPUT.relative_to(ROOT)} does not match the commands: run `make reference`.")
        return 0 if same else 1
    OUTPUT.write_text(page, encoding="utf-8")
    print(f"{OUTPUT.relative_to(ROOT)} {'is as it was' if same else 'is written'}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
