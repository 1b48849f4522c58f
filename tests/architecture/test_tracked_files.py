"""What is under version control works on any machine: it names no registry and no machine's paths."""

import re

from tests.architecture.sources import GENERATED, name_of, tracked_files

FORBIDDEN = {
    "a package registry": re.compile(
        r"pypi\.org|pythonhosted\.org|(?:--|\b)(?:extra-)?index-url|--find-links|trusted-host|/simple/?(?:\s|$)"
        r"|\b(?:artifactory|nexus|devpi|jfrog)\b",
        re.IGNORECASE,
    ),
    "a path of one machine": re.compile(
        r"(?<![\w.~/-])/(?:root|home|work|Users|opt/wheels|mnt|workspace)/\w"
    ),
}
# It would find its own patterns.
EXEMPT = {"tests/architecture/test_tracked_files.py"}


def test_tracked_files_name_no_registry_and_no_machine():
    """A clone elsewhere must not depend on where we work."""
    found = []
    for path in tracked_files():
        if name_of(path) in EXEMPT or path.is_relative_to(GENERATED):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for what, pattern in FORBIDDEN.items():
            found += [f"{name_of(path)}: {what}: {match[0]}" for match in pattern.finditer(text)]

    assert found == []


def test_the_constraints_pin_exact_versions():
    """Each line is one distribution at one version."""
    constraints = next(path for path in tracked_files() if path.name == "constraints.txt")
    lines = [
        line for line in constraints.read_text(encoding="utf-8").splitlines() if not line.startswith("#")
    ]

    assert len(lines) > 20
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line)] == []
