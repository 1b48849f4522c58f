"""Settings: what is refused and how, and which source wins."""

from pathlib import Path

import pytest

from fila import config
from fila.errors import ConfigError

SAMPLE = """
[server]
listen_addr = "0.0.0.0:5555"

[scheduler]
quantum = 1000

[lua]
default_timeout_ms = 10
circuit_breaker_threshold = 3

[telemetry]
otlp_endpoint = "http://localhost:4317"
"""


def load(tmp_path, text=None, *, environment=None, overrides=None):
    """Load `text` as the fila.toml of an otherwise empty machine."""
    if text is not None:
        (tmp_path / "fila.toml").write_text(text)
    return config.load(
        environment=environment or {},
        overrides=overrides,
        working_dir=tmp_path,
        system_path=tmp_path / "etc" / "fila.toml",
    )


def refusal(tmp_path, text=None, **sources):
    """Return the sentence with which the settings are refused."""
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, **sources)
    assert "\n" not in caught.value.message
    assert caught.value.message.endswith((".", "?"))
    return caught.value.message


def test_without_any_source_the_defaults_hold(tmp_path):
    """A broker starts without configuration."""
    settings = load(tmp_path)

    assert settings == config.Settings()
    assert settings.server.listen_addr == "127.0.0.1:5555"
    assert settings.storage == config.StorageSettings(data_dir=Path("data"), durability="fsync")
    assert settings.scheduler == config.SchedulerSettings(quantum=1000, consumer_window=100)
    assert settings.telemetry.otlp_endpoint is None


def test_the_sample_of_the_contract_loads_with_its_later_sections(tmp_path):
    """Settings of hooks are accepted before there are hooks."""
    settings = load(tmp_path, SAMPLE)

    assert settings.server.listen_addr == "0.0.0.0:5555"
    assert settings.lua.circuit_breaker_threshold == 3
    assert settings.telemetry.otlp_endpoint == "http://localhost:4317"
    assert settings.source == tmp_path / "fila.toml"


def test_a_flag_beats_the_environment_which_beats_the_file(tmp_path):
    """The nearest source wins."""
    text = (
        '[storage]\ndata_dir = "of-file"\n[server]\nlisten_addr = "127.0.0.1:1"\n[scheduler]\nquantum = 7\n'
    )
    environment = {"FILA_DATA_DIR": "of-environment", "FILA_LISTEN_ADDR": "127.0.0.1:2"}

    settings = load(
        tmp_path,
        text,
        environment=environment,
        overrides={"server.listen_addr": "127.0.0.1:3", "scheduler.quantum": None},
    )

    assert settings.storage.data_dir == Path("of-environment")
    assert settings.server.listen_addr == "127.0.0.1:3"
    assert settings.scheduler.quantum == 7


def test_an_empty_directory_on_the_command_line_is_refused(tmp_path):
    """An unset shell variable must not put the store into the working directory."""
    assert 'data_dir = ""' in refusal(tmp_path, overrides={"storage.data_dir": ""})


def test_the_working_directory_beats_the_system_and_a_named_file_beats_both(tmp_path):
    """Exactly one file is read."""
    system, local, named = tmp_path / "etc" / "fila.toml", tmp_path / "fila.toml", tmp_path / "named.toml"
    system.parent.mkdir()
    system.write_text("[scheduler]\nquantum = 1\n")

    assert load(tmp_path).source == system
    local.write_text("[scheduler]\nquantum = 2\n")
    assert load(tmp_path).source == local
    named.write_text("[scheduler]\nquantum = 3\n")
    settings = config.load(config_path=named, environment={}, working_dir=tmp_path, system_path=system)
    assert (settings.source, settings.scheduler.quantum) == (named, 3)


def test_an_empty_variable_is_not_set(tmp_path):
    """Containers pass empty variables for absent ones."""
    empty = {"FILA_DATA_DIR": "", "FILA_BOOTSTRAP_APIKEY": "", "FILA_LISTEN_ADDR": ""}

    assert load(tmp_path, environment=empty) == config.Settings()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[schedular]\nquantum = 1\n", ['section "schedular"', 'did you mean "scheduler"?', "fila.toml"]),
        (
            "[scheduler]\nquantun = 1\n",
            ['key "quantun"', "[scheduler]", 'did you mean "quantum"?', "fila.toml"],
        ),
        ("[scheduler]\nxyz = 1\n", ['key "xyz"', "known are quantum, consumer_window"]),
        (
            "[unheard]\n",
            ['section "unheard"', "; known are server, storage, scheduler, lua, telemetry, auth, tls."],
        ),
        ("[storage]\nlisten_addr = 1\n", ['key "listen_addr"', "[storage]"]),
        ("[scheduler]\nquantum = 0\n", ["quantum = 0", "whole number from 1 to", "fila.toml"]),
        ("[scheduler]\nquantum = 2.5\n", ["quantum = 2.5", "whole number"]),
        ("[scheduler]\nquantum = true\n", ["quantum = true", "whole number"]),
        ("[scheduler]\nconsumer_window = 10001\n", ["consumer_window = 10001", "from 1 to 10000"]),
        ('[storage]\ndurability = "maybe"\n', ['durability = "maybe"', '"fsync" or "os"']),
        ('[storage]\ndata_dir = ""\n', ['data_dir = ""', "path of a directory"]),
        ("[storage]\ndata_dir = 5\n", ["data_dir = 5", "path of a directory"]),
        ('[telemetry]\notlp_endpoint = "localhost:4317"\n', ['"localhost:4317"', "a URL such as"]),
        ('[telemetry]\nservice_name = ""\n', ['service_name = ""', "printable"]),
        ("[telemetry]\nmetrics_interval_ms = 1\n", ["metrics_interval_ms = 1", "from 100 to"]),
        ('[telemetry]\nlog_format = "xml"\n', ['log_format = "xml"', '"text" or "json"']),
        ("[lua]\ndefault_timeout_ms = -1\n", ["default_timeout_ms = -1", "from 1 to"]),
        ("server = 3\n", ["server = 3", "[server]"]),
        ("[server\n", ["not valid TOML", "fila.toml", "line 1", "correct that place"]),
    ],
)
def test_a_wrong_file_is_refused_with_key_value_place_and_remedy(tmp_path, text, parts):
    """Nothing unknown or out of range is passed over or mended."""
    message = refusal(tmp_path, text)

    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    "address",
    ["5555", ":5555", "host:", "host:port", "host:65536", "::1:5555", "[::1", "300.1.1.1:1", "a b:1", 5],
)
def test_a_wrong_address_is_refused(tmp_path, address):
    """An address that cannot be bound is named before anything is opened."""
    message = refusal(tmp_path, overrides={"server.listen_addr": address})

    assert str(address) in message
    assert "host:port" in message
    assert "command line" in message


@pytest.mark.parametrize(
    "address", ["127.0.0.1:0", "[::1]:5555", "[::]:1", "localhost:65535", "broker-1.internal:80"]
)
def test_a_right_address_is_taken_as_written(tmp_path, address):
    """Names, both kinds of IP address, and port 0 for a free port."""
    assert load(tmp_path, environment={"FILA_LISTEN_ADDR": address}).server.listen_addr == address


@pytest.mark.parametrize(
    "text",
    [
        "[tls]\n",
        '[tls]\nserver_cert = "secret-1"\n',
        '[tls]\ncert_file = "secret-1"\nkey_file = "k"\n',
        '[tls]\nca_file = "secret-1"\n',
    ],
)
def test_encryption_that_is_not_there_is_refused(tmp_path, text):
    """Who configures TLS must not get an open port."""
    message = refusal(tmp_path, text)

    assert "[tls]" in message
    assert "does not encrypt connections" in message


def test_a_bootstrap_key_is_refused_wherever_it_comes_from_and_never_shown(tmp_path):
    """Who sets a key must not get a broker that checks none; secrets stay out of messages."""
    messages = [
        refusal(tmp_path, environment={"FILA_BOOTSTRAP_APIKEY": "secret-1"}),
        refusal(tmp_path, '[auth]\nbootstrap_apikey = "secret-1"\n'),
        refusal(tmp_path, '[server]\nbootstrap_apikey = "secret-1"\n'),
    ]

    assert "FILA_BOOTSTRAP_APIKEY" in messages[0]
    for message in messages:
        assert "does not check API keys" in message
        assert "secret-1" not in message


def test_a_misspelt_key_of_a_secret_does_not_show_the_secret(tmp_path):
    """The name is enough to correct it."""
    message = refusal(tmp_path, '[auth]\nbootstrap_api_key = "secret-1"\n')

    assert 'did you mean "bootstrap_apikey"' in message
    assert "secret-1" not in message


def test_a_named_file_that_is_missing_or_unreadable_is_refused(tmp_path):
    """A path that was asked for is never passed over."""
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    for path, part in [
        (tmp_path / "absent.toml", "No such file"),
        (tmp_path, "Is a directory"),
        (binary, "not UTF-8"),
    ]:
        with pytest.raises(ConfigError, match=part) as caught:
            config.load(config_path=path, environment={})
        assert str(path) in caught.value.message


def test_an_unknown_override_is_refused(tmp_path):
    """A flag that is wired to nothing is a mistake of ours that must show."""
    assert 'key "no_such_key"' in refusal(tmp_path, overrides={"server.no_such_key": 1})


def test_every_setting_has_a_rule_and_every_rule_a_setting():
    """The table of rules and the dataclasses say the same."""
    settings = config.Settings()

    for section, rules in config.RULES.items():
        assert set(rules) == set(getattr(settings, section).__dataclass_fields__)
    for section, rules in config.RULES.items():
        for key, rule in rules.items():
            default = getattr(getattr(settings, section), key)
            assert default is None or rule.parse(default) == default
