"""What the architecture tests read: our own source files and their syntax trees."""

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "fila"
GENERATED = SOURCE / "wire" / "v1"


def python_files(*folders: Path) -> list[Path]:
    """List the files that people write below `folders`, generated ones left out."""
    return sorted(
        path for folder in folders for path in folder.rglob("*.py") if not path.is_relative_to(GENERATED)
    )


@cache
def tree_of(path: Path) -> ast.Module:
    """Parse a file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def name_of(path: Path) -> str:
    """Return the path as it is written in lists and messages."""
    return path.relative_to(ROOT).as_posix()


def tracked_files() -> list[Path]:
    """List the files under version control, or all that could be where there is none."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode == 0:
        return [path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file()]
    hidden = {".venv", ".git", "__pycache__", "data"}
    return [path for path in ROOT.rglob("*") if path.is_file() and not hidden & set(path.parts)]
