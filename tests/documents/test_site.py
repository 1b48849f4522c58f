"""The site builds from the documents without a warning, and needs nothing from elsewhere."""

import re
import subprocess
import sys

import pytest
from tests.architecture.sources import ROOT, tracked_files

import fila

pytest.importorskip("sphinx", reason="the extra `docs` is not installed: the site is not built")

TIMEOUT_S = 120


def build(source, directory):
    """Build a site as `make docs` does."""
    options = ["--fail-on-warning", "--keep-going", "--quiet", "--conf-dir", str(ROOT / "docs")]
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            *options,
            "-d",
            str(directory / "trees"),
            str(source),
            str(directory / "site"),
        ],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Where the site is."""
    directory = tmp_path_factory.mktemp("site")
    built = build(ROOT, directory)
    assert (built.returncode, built.stderr) == (0, "")
    return directory / "site"


def test_every_document_is_a_page(site):
    """What is in docs/ is in the site, and the directory opens with a page that leads to its start."""
    documents = [path.relative_to(ROOT) for path in tracked_files() if path.suffix == ".md"]

    missing = [path for path in documents if not (site / path).with_suffix(".html").is_file()]

    assert len(documents) > 20
    assert missing == []
    assert "docs/index.html" in (site / "index.html").read_text(encoding="utf-8")


def test_the_pages_ask_nobody_else(site):
    """No font, script or style comes from another host: a page may be read without a network, and unseen."""
    asked = [
        (page.name, found)
        for page in site.rglob("*.html")
        for found in re.findall(
            r"<(?:link|script|img|iframe)[^>]*(?:src|href)=\"(https?:[^\"]*)",
            page.read_text(encoding="utf-8"),
        )
    ]

    assert asked == []


def test_the_reference_of_the_client_is_generated(site):
    """The methods are there with their types and what their docstrings say."""
    page = (site / "docs" / "reference" / "api.html").read_text(encoding="utf-8")

    for name in ("enqueue", "consume", "producer", "create_queue", "FilaError", "LimitError"):
        assert f">{name}<" in page
    assert "fairness_key" in page


def test_the_reference_has_every_public_name():
    """What can be imported from `fila` is described."""
    text = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")

    assert [name for name in fila.__all__ if not re.search(rf"fila\.{name}\b|`{name}`", text)] == [
        "__version__"
    ]


def test_broken_links_are_found(tmp_path):
    """The build fails where a link leads nowhere: a page, a heading here, a heading elsewhere, a file."""
    broken = ["nowhere.md", "#no-such-heading", "other.md#no-such-heading", "../src/nothing.py"]
    links = "\n\n".join(f"[link]({target})" for target in ["other.md", *broken])
    source = tmp_path / "source"
    (source / "docs").mkdir(parents=True)
    (source / "docs" / "index.md").write_text(f"# Start\n\n{links}\n\n```{{toctree}}\nother\n```\n")
    (source / "docs" / "other.md").write_text("# Other\n")

    built = build(source, tmp_path)

    assert built.returncode != 0
    assert built.stderr.count("xref_missing") == len(broken), built.stderr
