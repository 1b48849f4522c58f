"""The documents speak the truth: every command in them exists, with its options, also where nobody runs it."""

import json
import re
import shlex
from importlib import import_module

import click
import pytest
from google.protobuf import descriptor_pool, json_format, message_factory
from tests.architecture.sources import ROOT, tracked_files

from fila.wire.v1 import admin_pb2, service_pb2  # noqa: F401 - fills the descriptor pool

DOCUMENTS = [path for path in tracked_files() if path.suffix == ".md"]
COMMANDS = ("fila", "fila-server", "make", "grpcurl")


def shell_commands(text: str) -> list[list[str]]:
    """Return the commands in ```sh fences that are ours or drive us, as words."""
    commands = []
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                words = words[1:]
            commands += [each for each in pipeline(words) if each[0].rsplit("/", 1)[-1] in COMMANDS]
    return commands


def pipeline(words: list[str]) -> list[list[str]]:
    """Split words at pipes and other joints of the shell."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word in {"|", "&&", "||", ";", "&"}:
            parts.append([])
        elif word in {">", ">>", "<", "2>", "2>&1"}:
            break
        else:
            parts[-1].append(word)
    return [part for part in parts if part]


def commands_named(*names: str) -> list[list[str]]:
    """Return the documents' commands of these programs, their arguments only."""
    commands = [words for path in DOCUMENTS for words in shell_commands(path.read_text(encoding="utf-8"))]
    return [words[1:] for words in commands if words[0].rsplit("/", 1)[-1] in names]


def click_command(module: str) -> click.Command:
    """Find the click command behind a console script."""
    found = vars(import_module(module))
    candidates = [found.get("main"), found.get("cli"), *found.values()]
    return next(each for each in candidates if isinstance(each, click.Command))


def check_words(command: click.Command, words: list[str], parent: click.Context | None = None) -> None:
    """Raise click.UsageError where the words are not what the command takes."""
    try:
        context = command.make_context(command.name, list(words), parent=parent)
    except click.exceptions.Exit:
        return
    except click.MissingParameter:
        raise
    except click.BadParameter:
        # The example's files and addresses need not exist here.
        return
    if isinstance(command, click.Group):
        remaining = [*context._protected_args, *context.args]
        _, subcommand, rest = command.resolve_command(context, remaining)
        assert subcommand is not None
        check_words(subcommand, rest, context)


def check_grpcurl(words: list[str]) -> None:
    """Assert that a grpcurl command calls a method we have with a request that it takes."""
    target = words[-1]
    if target in {"list", "describe"} or "list" in words or "describe" in words:
        return
    service, _, method = target.replace("/", ".").rpartition(".")
    if service.startswith("grpc."):
        return
    described = descriptor_pool.Default().FindServiceByName(service).methods_by_name[method]
    if "-d" in words and words[words.index("-d") + 1] != "@":
        request = message_factory.GetMessageClass(described.input_type)()
        json_format.ParseDict(json.loads(words[words.index("-d") + 1]), request)


def test_the_documents_show_commands():
    """An empty list would pass everything."""
    assert commands_named("fila")
    assert commands_named("grpcurl")
    assert ["run"] in commands_named("make")
    assert ["test"] in commands_named("make")


def test_the_make_targets_of_the_documents_exist():
    """`make nothing` is not in a document."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))

    wanted = {word for words in commands_named("make") for word in words if re.fullmatch(r"[a-z-]+", word)}

    assert wanted <= targets


@pytest.mark.parametrize(
    ("script", "module"), [("fila", "fila.cli.main"), ("fila-server", "fila.cli.server")]
)
def test_the_fila_commands_of_the_documents_exist_with_their_options(script, module):
    """Names, options and required arguments are those of the command line."""
    command = click_command(module)

    for words in commands_named(script):
        try:
            check_words(command, words)
        except click.UsageError as error:
            pytest.fail(f"{script} {shlex.join(words)}: {error.format_message()}")


def test_the_grpcurl_calls_of_the_documents_exist_and_take_their_requests():
    """Service, method and fields are those of proto/."""
    for words in commands_named("grpcurl"):
        check_grpcurl(words)


def test_the_check_finds_commands_that_do_not_exist():
    """The checker itself is checked."""
    group = click.Group("fila", {"queue": click.Group("queue", {"list": click.Command("list")})})

    check_words(group, ["queue", "list"])
    for wrong in (
        ["queues"],
        ["queue", "lst"],
        ["queue", "list", "--no-such-option"],
        ["queue", "list", "extra"],
    ):
        with pytest.raises(click.UsageError):
            check_words(group, wrong)
    with pytest.raises(KeyError):
        check_grpcurl(["-plaintext", "localhost:5555", "fila.v1.FilaService/NoSuchMethod"])
    with pytest.raises(json_format.ParseError):
        check_grpcurl(["-d", '{"no_such_field": 1}', "localhost:5555", "fila.v1.FilaService/Enqueue"])


def test_the_commands_are_found_in_their_fences():
    """The parser of the documents is checked as well."""
    text = "```sh\n$ make run ARGS=x # starts\nFILA_X=1 .venv/bin/fila queue \\\n  list | jq .\necho hi | fila enqueue q\n```\n"

    assert shell_commands(text) == [
        ["make", "run", "ARGS=x"],
        [".venv/bin/fila", "queue", "list"],
        ["fila", "enqueue", "q"],
    ]
