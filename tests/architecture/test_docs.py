"""The documents agree with the code: settings, limits, message ids, paths and links."""

import ast
import inspect
import re

import click
import pytest
from tests.architecture.sources import ROOT, tracked_files

from fila import config, limits
from fila.cli.server import server
from fila.core.scheduler import Scheduler
from fila.wire.ids import message_id

DOCS = ROOT / "docs"
SETTINGS = config.Settings()
DOCUMENTS = sorted(path for path in tracked_files() if path.suffix == ".md")


def rows(document, title):
    """Return the cells of the table that begins with this title."""
    lines = (DOCS / document).read_text(encoding="utf-8").splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith(f"| {title} |"))
    table = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    assert table
    return table


def shown(section, key):
    """Return a default as configuration.md shows it."""
    value = getattr(getattr(SETTINGS, section), key)
    if value is None:
        return "unset"
    return f"`{value}`" if isinstance(value, int) else f'`"{value}"`'


def test_configuration_has_every_key_with_its_default_and_what_is_allowed():
    """docs/configuration.md and fila.config.RULES are the same list."""
    described = [(key, default, allowed) for key, default, allowed, _ in rows("configuration.md", "Key")]

    assert described == [
        (f"`[{section}] {key}`", shown(section, key), rule.allowed)
        for section, rules in config.RULES.items()
        for key, rule in rules.items()
    ]


def test_configuration_names_every_refused_protection():
    """What makes the broker refuse to start is written down."""
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")

    missing = [
        f"[{section}] {key}"
        for section, keys in config.PROTECTIONS.items()
        for key in keys
        if f"`[{section}] {key}`" not in text
    ]

    assert missing == []


def test_configuration_has_every_variable():
    """Each variable of the server stands for the key that it stands for, and those of the client are there."""
    described = {variable: meaning for variable, _, meaning in rows("configuration.md", "Variable")}

    for variable, (section, key) in config.SETTING_BY_VARIABLE.items():
        assert f"`[{section}] {key}`" in described.pop(f"`{variable}`")
    assert described == {"`FILA_ADDR`": "`--addr`", "`FILA_CA_FILE`": "`--ca-file`"}


def test_configuration_has_every_flag():
    """The flags of `fila server` are those of the command."""
    flags = [option for each in server.params if isinstance(each, click.Option) for option in each.opts]

    assert [flag for flag, _ in rows("configuration.md", "Flag")] == [f"`{flag}`" for flag in flags]


@pytest.mark.parametrize(("name", "value"), [(row[1], row[2]) for row in rows("wire.md", "Limit")])
def test_limits_of_the_wire_are_those_of_the_code(name, value):
    """A client's author reads the number that the broker holds to."""
    assert value == f"{getattr(limits, name.strip('`')):,}"


@pytest.mark.parametrize(("numbers", "text"), [(row[:3], row[3]) for row in rows("wire.md", "Queue number")])
def test_vectors_of_message_ids_hold(numbers, text):
    """The published test vectors are right."""
    assert text == f"`{message_id(*map(int, numbers))}`"


def test_glossary_has_each_word_once_in_order():
    """One word, one meaning, easy to find."""
    words = [row[0] for row in rows("glossary.md", "Word")]

    assert words == sorted(set(words))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path):
    """A relative link names a file, and an anchor a heading in it."""
    for target in re.findall(r"\]\(([^)#\s]*(?:#[^)\s]*)?)\)", path.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        linked = (path.parent / name) if name else path
        assert linked.exists(), f"{target} does not exist"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs, f"{target} has no such heading"


def test_architecture_names_files_that_exist():
    """The one page is true of the code as it is."""
    text = (DOCS / "ARCHITECTURE.md").read_text(encoding="utf-8")
    names = re.findall(r"`([\w./-]+(?:\.py|/))`", text)

    assert len(names) > 20
    assert [
        name
        for name in names
        if not any((ROOT / base / name).exists() for base in ("", "src/fila", "src/fila/core/fairness"))
    ] == []


def test_the_contract_of_the_core_is_that_of_the_code():
    """ARCHITECTURE.md shows the two methods of the scheduler as they are."""
    text = (DOCS / "ARCHITECTURE.md").read_text(encoding="utf-8")
    (shown,) = ast.parse(
        re.search(r"^```python\n(class Scheduler.*?)^```", text, re.MULTILINE | re.DOTALL)[1]
    ).body

    assert [method.name for method in shown.body] == ["step", "next_wake_ns"]
    for method in shown.body:
        real = inspect.signature(getattr(Scheduler, method.name))
        assert [argument.arg for argument in method.args.args] == list(real.parameters)
        hints = [argument.annotation for argument in method.args.args[1:]] + [method.returns]
        types = [*list(real.parameters.values())[1:], real]
        assert [ast.unparse(hint).split("[")[0] for hint in hints] == [type_name(each) for each in types]


def type_name(described):
    """Return what a parameter or a result is, without the module."""
    hint = described.return_annotation if isinstance(described, inspect.Signature) else described.annotation
    return getattr(hint, "__name__", str(hint))


def test_every_decision_is_in_the_list():
    """A page that nobody finds decides nothing."""
    listed = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")

    pages = [page.name for page in (DOCS / "decisions").glob("0*.md")]

    assert len(pages) >= 8
    assert [page for page in pages if f"({page})" not in listed] == []


@pytest.mark.parametrize("part", ["Goal", "Decision", "Measurement", "Non-goals", "Rejected"])
def test_every_decision_has_its_parts(part):
    """A decision says what it wants, what was measured, and what was not taken."""
    pages = (DOCS / "decisions").glob("0*.md")

    assert [page.name for page in pages if f"**{part}.**" not in page.read_text(encoding="utf-8")] == []
