"""An environment that has a wheel of ours and what the wheel says it needs, and nothing else.

The tests have no network: what is needed is linked, file by file, from the environment of the tests. So a requirement that
is not declared is missing here, as it would be at a user's.
"""

import subprocess
import sys
import venv
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from zipfile import Path as ZipPath

from packaging.requirements import Requirement


def requirements_of(found: Distribution, extras=frozenset()):
    """Return what a distribution requires here, with the extras that it is asked for."""
    environments = [{"extra": extra} for extra in ("", *extras)]
    requirements = [Requirement(text) for text in found.requires or ()]
    return [
        requirement
        for requirement in requirements
        if requirement.marker is None or any(map(requirement.marker.evaluate, environments))
    ]


def closure_of(requirements):
    """Return the installed distributions that satisfy requirements, those of their own requirements included."""
    found, seen, rest = {}, set(), list(requirements)
    while rest:
        requirement = rest.pop()
        installed = distribution(requirement.name)
        asked = (installed.name, frozenset(requirement.extras))
        if asked not in seen:
            seen.add(asked)
            found[installed.name] = installed
            rest += requirements_of(installed, requirement.extras)
    return list(found.values())


def link_into(directory: Path, distributions):
    """Make distributions importable from a directory; their commands are left out."""
    for installed in distributions:
        for file in installed.files or ():
            source = Path(installed.locate_file(file))
            if ".." not in file.parts and source.is_file():
                place = directory / file
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(source.resolve())


class EmptyEnvironment:
    """A virtual environment with a wheel in it, made by pip with no index to take anything else from."""

    def __init__(self, directory: Path, wheel: Path):
        venv.create(directory, symlinks=True, with_pip=False)
        self._bin = directory / "bin"
        self.python = self._bin / "python"
        self.site = next(directory.glob("lib/python*/site-packages"))
        metadata = ZipPath(wheel, f"{'-'.join(wheel.name.split('-')[:2])}.dist-info/")
        link_into(self.site, closure_of(requirements_of(PathDistribution(metadata))))
        # It refuses the wheel if one of its requirements is not met, in name or version.
        pip = [sys.executable, "-m", "pip", "--python", self.python, "--isolated", "--quiet"]
        subprocess.run([*pip, "install", "--no-index", wheel], check=True)

    def command(self, name):
        """Return the path of an installed command."""
        return self._bin / name

    def run(self, *command, **options):
        """Run one of its commands to its end, away from the checkout, and return what it printed."""
        name, *arguments = command
        ended = subprocess.run(
            [self._bin / name, *map(str, arguments)], capture_output=True, text=True, check=False, **options
        )
        assert ended.returncode == 0, f"{command}: {ended.stdout}{ended.stderr}"
        return ended.stdout
