"""Generate the Python side of the wire contract from proto/ into src/fila/wire/v1.

The generated modules import each other as `fila.v1`, which would be a module of our own package that does
not exist: the imports are rewritten to `fila.wire.v1`. Proto package and descriptor names stay `fila.v1`,
so reflection and other languages see the contract as it is written.
"""

import argparse
import re
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTO_DIR = ROOT / "proto"
OUTPUT_DIR = ROOT / "src" / "fila" / "wire" / "v1"

# The messages file has no service: its `_grpc` modules would be empty.
MODULES_WITHOUT_SERVICE = ("messages",)

PACKAGE_INIT = '"""Generated from proto/ by `make proto`: do not edit."""\n'

_IMPORT = re.compile(r"^(?P<indent>\s*)(?P<verb>from|import) fila\.v1(?=[ .])", re.MULTILINE)


def generate() -> dict[str, str]:
    """Return the text of every generated file by its name."""
    from grpc_tools import protoc  # type: ignore[import-untyped]  # noqa: PLC0415 - a tool of development

    sources = sorted(path.relative_to(PROTO_DIR).as_posix() for path in PROTO_DIR.glob("fila/v1/*.proto"))
    scripts = Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as scratch:
        arguments = [
            "protoc",
            f"--proto_path={PROTO_DIR}",
            f"--proto_path={files('grpc_tools') / '_proto'}",
            f"--plugin=protoc-gen-mypy={scripts / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={scripts / 'protoc-gen-mypy_grpc'}",
            f"--python_out={scratch}",
            f"--grpc_python_out={scratch}",
            f"--mypy_out=quiet:{scratch}",
            f"--mypy_grpc_out=quiet:{scratch}",
            *sources,
        ]
        if protoc.main(arguments) != 0:
            raise SystemExit("protoc refused the files in proto/: see its message above.")
        generated = {"__init__.py": PACKAGE_INIT}
        for path in sorted(Path(scratch, "fila", "v1").iterdir()):
            if path.name.startswith(tuple(f"{name}_pb2_grpc." for name in MODULES_WITHOUT_SERVICE)):
                continue
            generated[path.name] = _with_our_imports(path.read_text(encoding="utf-8"))
    return generated


def _with_our_imports(text: str) -> str:
    rewritten = _IMPORT.sub(r"\g<indent>\g<verb> fila.wire.v1", text)
    # Plain `import fila.v1.x` binds the dotted name, which the text then uses.
    return re.sub(r"\bfila\.v1\.(?=\w+_pb2\.)", "fila.wire.v1.", rewritten)


def committed() -> dict[str, str]:
    """Return the text of every file in the output folder by its name."""
    return {
        path.name: path.read_text(encoding="utf-8") for path in sorted(OUTPUT_DIR.glob("*")) if path.is_file()
    }


def main() -> int:
    """Write the generated files, or with --check only compare them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument(
        "--check", action="store_true", help="compare with the committed files, write nothing"
    )
    arguments = parser.parse_args()

    generated, present = generate(), committed()
    stale = sorted(name for name in generated | present if generated.get(name) != present.get(name))
    if arguments.check:
        for name in stale:
            print(f"{(OUTPUT_DIR / name).relative_to(ROOT)} does not match proto/: run `make proto`.")
        return 1 if stale else 0

    OUTPUT_DIR.mkdir(parents=True, exist_ok=True)
    for name in stale:
        if name in generated:
            (OUTPUT_DIR / name).write_text(generated[name], encoding="utf-8")
        else:
            (OUTPUT_DIR / name).unlink()
    print(f"{len(generated)} files in {OUTPUT_DIR.relative_to(ROOT)}, {len(stale)} changed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
