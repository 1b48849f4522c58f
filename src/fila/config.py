"""The settings of a broker: frozen values from fila.toml, the environment and flags.

Everything is checked once, here, at start: what leaves this module is right or was refused with one
sentence. It opens no other file than fila.toml, and knows nothing of the objects that the settings shape.
"""

import ipaddress
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from fila import limits
from fila.errors import ConfigError

Durability = Literal["fsync", "os"]
LogFormat = Literal["text", "json"]

SYSTEM_CONFIG_PATH: Final = Path("/etc/fila/fila.toml")
LOCAL_CONFIG_PATH: Final = Path("fila.toml")

# A day: longer intervals are a mistaken unit.
INTERVAL_MS_MAX: Final = 24 * 3600 * 1000
# A hook holds up its batch: more than this is no policy but a program.
LUA_TIMEOUT_MS_MAX: Final = 10_000
LUA_MEMORY_BYTES_MAX: Final = 1024 * limits.MIB
# An interpreter alone needs this much.
LUA_MEMORY_BYTES_MIN: Final = 64 * limits.KIB
BREAKER_THRESHOLD_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where the broker listens."""

    listen_addr: str = "127.0.0.1:5555"


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """Where messages are kept, and when they count as kept."""

    data_dir: Path = Path("data")
    durability: Durability = "fsync"


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """How shares are dealt out, and what one `Consume` stream may hold unacked."""

    quantum: int = limits.QUANTUM_DEFAULT
    consumer_window: int = limits.CONSUMER_WINDOW_DEFAULT


@dataclass(frozen=True, slots=True)
class LuaSettings:
    """What a hook script may use, and when a failing one is passed over."""

    default_timeout_ms: int = 10
    default_memory_limit_bytes: int = limits.MIB
    circuit_breaker_threshold: int = 3
    circuit_breaker_cooldown_ms: int = 10_000


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """Where metrics and spans go, and how logs look; without an endpoint nothing is measured."""

    otlp_endpoint: str | None = None
    service_name: str = "fila"
    metrics_interval_ms: int = 10_000
    log_format: LogFormat = "text"


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one broker, and the file that they were read from."""

    server: ServerSettings = ServerSettings()
    storage: StorageSettings = StorageSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    lua: LuaSettings = LuaSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    source: Path | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """What one key may be: `parse` returns the setting, or None for a value that is not allowed."""

    allowed: str
    parse: Callable[[object], object | None]


def _whole_number(minimum: int, maximum: int) -> Rule:
    def parse(value: object) -> int | None:
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value):
            value = int(value)
        # A TOML boolean is an int to Python.
        if isinstance(value, bool) or not isinstance(value, int):
            return None
        return value if minimum <= value <= maximum else None

    return Rule(f"a whole number from {minimum} to {maximum}", parse)


def _one_of(*choices: str) -> Rule:
    def parse(value: object) -> object | None:
        return value if value in choices else None

    return Rule(" or ".join(f'"{choice}"' for choice in choices), parse)


def _text(allowed: str, pattern: str) -> Rule:
    def parse(value: object) -> str | None:
        return value if isinstance(value, str) and re.fullmatch(pattern, value) else None

    return Rule(allowed, parse)


def _parse_directory(value: object) -> Path | None:
    text = str(value) if isinstance(value, str | Path) else ""
    return Path(text) if text and "\0" not in text else None


def _parse_address(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    host, colon, port = value.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65_535:
        return None
    if host.startswith("[") and host.endswith("]"):
        return value if _is_ip_address(host[1:-1], version=6) else None
    # Digits and dots alone are meant as an address: gRPC would look up "300.1.1.1" as a name.
    if re.fullmatch(r"[0-9.]+", host):
        return value if _is_ip_address(host, version=4) else None
    return value if re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?", host) else None


def _is_ip_address(text: str, *, version: Literal[4, 6]) -> bool:
    try:
        return ipaddress.ip_address(text).version == version
    except ValueError:
        return False


def _parse_endpoint(value: object) -> str | None:
    if not isinstance(value, str) or re.search(r"\s", value):
        return None
    try:
        parts = urlsplit(value)
        # Reading the port is what checks it.
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return value if usable else None


# The keys of fila.toml, by section, in the order of the documentation.
RULES: Final[Mapping[str, Mapping[str, Rule]]] = {
    "server": {
        "listen_addr": Rule('"host:port" with a port from 0 to 65535', _parse_address),
    },
    "storage": {
        "data_dir": Rule("the path of a directory", _parse_directory),
        "durability": _one_of("fsync", "os"),
    },
    "scheduler": {
        "quantum": _whole_number(1, limits.QUANTUM_MAX),
        "consumer_window": _whole_number(1, limits.CONSUMER_WINDOW_MAX),
    },
    "lua": {
        "default_timeout_ms": _whole_number(1, LUA_TIMEOUT_MS_MAX),
        "default_memory_limit_bytes": _whole_number(LUA_MEMORY_BYTES_MIN, LUA_MEMORY_BYTES_MAX),
        "circuit_breaker_threshold": _whole_number(1, BREAKER_THRESHOLD_MAX),
        "circuit_breaker_cooldown_ms": _whole_number(1, INTERVAL_MS_MAX),
    },
    "telemetry": {
        "otlp_endpoint": Rule('a URL such as "http://localhost:4317"', _parse_endpoint),
        "service_name": _text("1 to 255 printable characters", r"[^\x00-\x1f\x7f]{1,255}"),
        "metrics_interval_ms": _whole_number(100, INTERVAL_MS_MAX),
        "log_format": _one_of("text", "json"),
    },
}

# Whoever sets one of these believes in a protection that this broker does not have: it must not start.
PROTECTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "server": {"bootstrap_apikey": "check API keys"},
    "auth": {"bootstrap_apikey": "check API keys"},
    "tls": dict.fromkeys(
        ("server_cert", "cert_file", "server_key", "key_file", "ca_cert", "ca_file"), "encrypt connections"
    ),
}

SETTING_BY_VARIABLE: Final[Mapping[str, tuple[str, str]]] = {
    "FILA_LISTEN_ADDR": ("server", "listen_addr"),
    "FILA_DATA_DIR": ("storage", "data_dir"),
    "FILA_BOOTSTRAP_APIKEY": ("auth", "bootstrap_apikey"),
}


def load(
    *,
    config_path: Path | None = None,
    environment: Mapping[str, str],
    overrides: Mapping[str, object] | None = None,
    working_dir: Path = Path(),
    system_path: Path = SYSTEM_CONFIG_PATH,
) -> Settings:
    """Read the settings: a flag beats the environment, which beats the file, which beats the default.

    `overrides` maps dotted keys such as "storage.data_dir" to the values of flags; None means not given.
    Raises ConfigError with one sentence that names the key, its value, where it stands and what is allowed.
    """
    values: dict[tuple[str, str], object] = {}
    source = _find_file(config_path, working_dir, system_path)
    if source is not None:
        values.update(_read_file(source))
    for variable, (section, key) in SETTING_BY_VARIABLE.items():
        # Set but empty is how shells and containers say "not set".
        if environment.get(variable):
            values[section, key] = _checked(
                section, key, environment[variable], f"environment variable {variable}"
            )
    for dotted, value in (overrides or {}).items():
        if value is not None:
            section, _, key = dotted.partition(".")
            values[section, key] = _checked(section, key, value, "the command line")
    return _settings(values, source)


def _find_file(config_path: Path | None, working_dir: Path, system_path: Path) -> Path | None:
    if config_path is not None:
        # Named explicitly: if it is missing, reading it says so.
        return config_path
    for candidate in (working_dir / LOCAL_CONFIG_PATH, system_path):
        try:
            candidate.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            # It may be there, unreadable: reading it says so, passing it over would not.
            return candidate
        return candidate
    return None


def _read_file(path: Path) -> dict[tuple[str, str], object]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"Cannot read {path}: {error.strerror or error}; correct the path or its permissions."
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text at byte {error.start}: save it as UTF-8.") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f'{path} is not valid TOML: {error}: correct that place; a section is [name], a key name = 1 or name = "text".'
        ) from error

    values: dict[tuple[str, str], object] = {}
    for section, table in document.items():
        if section not in RULES and section not in PROTECTIONS:
            raise ConfigError(
                f'Unknown section "{section}" in {path}{_suggestion(section, [*RULES, *PROTECTIONS])}'
            )
        if not isinstance(table, dict):
            raise ConfigError(
                f"{section} = {table!r} in {path} must be a section: write [{section}] and its keys."
            )
        if section == "tls" and not table:
            raise _unprotected("[tls]", "encrypt connections", str(path))
        for key, value in table.items():
            values[section, key] = _checked(section, key, value, str(path))
    return values


def _checked(section: str, key: str, value: object, origin: str) -> object:
    unprotected = PROTECTIONS.get(section, {}).get(key)
    if unprotected is not None:
        raise _unprotected(f"[{section}] {key}", unprotected, origin)
    rule = RULES.get(section, {}).get(key)
    if rule is None:
        known = [*RULES.get(section, {}), *PROTECTIONS.get(section, {})]
        raise ConfigError(f'Unknown key "{key}" in [{section}] in {origin}{_suggestion(key, known)}')
    setting = rule.parse(value)
    if setting is None:
        raise ConfigError(f"[{section}] {key} = {_shown(value)} in {origin} must be {rule.allowed}.")
    return setting


def _unprotected(what: str, promise: str, origin: str) -> ConfigError:
    # The value may be a secret and is not repeated.
    return ConfigError(
        f"{what} is set in {origin}, but this version of fila does not {promise}: "
        "remove the setting and guard the port by other means."
    )


def _suggestion(word: str, known: Sequence[str]) -> str:
    """Return the end of the sentence. A word may be known for several reasons, and is named once."""
    close = get_close_matches(word, known, n=1)
    return f': did you mean "{close[0]}"?' if close else f"; known are {', '.join(dict.fromkeys(known))}."


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = f'"{value}"' if isinstance(value, str | Path) else str(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _settings(values: Mapping[tuple[str, str], object], source: Path | None) -> Settings:
    # The rules have checked each value: the types that they return are those of the fields.
    given: dict[str, dict[str, Any]] = {section: {} for section in RULES}
    for (section, key), value in values.items():
        given[section][key] = value
    return Settings(
        server=ServerSettings(**given["server"]),
        storage=StorageSettings(**given["storage"]),
        scheduler=SchedulerSettings(**given["scheduler"]),
        lua=LuaSettings(**given["lua"]),
        telemetry=TelemetrySettings(**given["telemetry"]),
        source=source,
    )
