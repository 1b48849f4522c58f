"""How the documentation site is built: `make docs`. Its sources are the Markdown files as they lie in the repository."""

from pathlib import Path

from sphinx.application import Sphinx

from fila import __version__

project = "fila"
author = "the authors of fila"
release = __version__
version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
# The source directory is the root of the repository, so that links between documents are the same here and there.
root_doc = "docs/index"
include_patterns = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "bench/METHODOLOGY.md", "docs/**.md"]
# Not walked: what is large and has no documents.
exclude_patterns = [".git", ".venv", "build", "data", "dist", "src", "tests", "tools"]

html_theme = "furo"
html_title = f"fila {release}"
html_show_sphinx = False
html_copy_source = False
# The site is one of files: it needs nobody else's fonts, scripts or statistics.
html_theme_options = {"navigation_with_keys": True}

myst_heading_anchors = 4
# `message` in a docstring is code, as in Markdown.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88

_ENTRY = """<!doctype html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url=docs/index.html">
<title>fila</title>
<a href="docs/index.html">The documentation of fila</a>
"""


def _write_entry(app: Sphinx, error: Exception | None) -> None:
    """Write the page that a directory is opened with: the root document lies deeper."""
    if error is None:
        Path(app.outdir, "index.html").write_text(_ENTRY, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register what this file adds to the build."""
    app.connect("build-finished", _write_entry)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
