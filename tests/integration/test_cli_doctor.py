"""`fila doctor`: what it sees of disk, port and broker, and when it says that something fails."""

import json
import socket
import sys
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from click.testing import CliRunner
from tests.integration.pseudo_terminal import fila_at_terminal
from tests.integration.server_process import ServerProcess

from fila.cli import findings
from fila.cli.doctor import report
from fila.cli.findings import Finding, Mark
from fila.cli.main import main

CHECKS = [
    "fila",
    "packages",
    "open files",
    "data directory",
    "file system",
    "free space",
    "fsync",
    "port",
    "broker",
]


@contextmanager
def listener():
    """Somebody who listens and never answers."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def free_port():
    """A port that nobody has."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return trial.getsockname()[1]


def doctor(*arguments, directory, listen=None, **environment):
    """Examine a directory; return the exit code, and the checks by name."""
    listen = listen or f"127.0.0.1:{free_port()}"
    finished = CliRunner().invoke(
        main,
        ["doctor", "--data-dir", str(directory), "--listen", listen, *arguments],
        env={"FILA_ADDR": None} | environment,
    )
    told = json.loads(finished.stdout)
    assert told["ok"] == (finished.exit_code == 0)
    return finished.exit_code, {check["check"]: check for check in told["checks"]}


@pytest.fixture(scope="module")
def addr(tmp_path_factory):
    """Where a broker is."""
    with ServerProcess(tmp_path_factory.mktemp("broker")) as server:
        yield server.wait_until_ready().address


def test_all_is_well_beside_a_broker(addr, tmp_path):
    """Each check is there, once, in its order; the numbers are there for programs."""
    code, checks = doctor(directory=tmp_path, listen=addr, FILA_ADDR=addr)

    assert code == 0
    assert list(checks) == CHECKS
    assert checks["fila"]["values"]["python"] == sys.version.split()[0]
    assert {"grpcio", "protobuf", "rocksdict", "click"} <= set(checks["packages"]["values"])
    fsync = checks["fsync"]["values"]
    assert 0 < fsync["median_seconds"] <= fsync["p99_seconds"] < 10
    assert checks["free space"]["values"]["free_bytes"] > 0
    assert checks["file system"]["values"]["kind"]
    assert (checks["port"]["mark"], checks["broker"]["mark"]) == ("ok", "ok")
    assert "is in use by a fila broker" in checks["port"]["detail"]
    host, _, port = addr.rpartition(":")
    assert checks["port"]["values"] == {"host": host, "port": int(port)}
    assert checks["open files"]["values"].keys() == {"limit"}
    assert checks["data directory"]["values"] == {"path": str(tmp_path)}
    broker = checks["broker"]["values"]
    assert (broker["addr"], broker["queues"], broker["waiting"]) == (addr, 0, 0)
    assert 0 < broker["call_seconds"] < 10
    assert checks["broker"]["detail"].startswith(f"answers at {addr}: 0 queues, 0 messages waiting")


def test_it_leaves_nothing_behind(tmp_path):
    """Neither a file in the directory nor the directory that is still to be made."""
    (tmp_path / "data").mkdir()
    doctor(directory=tmp_path / "data")
    _, checks = doctor(directory=tmp_path / "later" / "data")

    assert list((tmp_path / "data").iterdir()) == []
    assert not (tmp_path / "later").exists()
    assert checks["data directory"]["mark"] == "ok"
    assert "is not there yet" in checks["data directory"]["detail"]


def test_directory_that_is_none_fails(tmp_path):
    """The rest of the disk is not looked at then."""
    (tmp_path / "data").write_text("a file", encoding="utf-8")

    code, checks = doctor(directory=tmp_path / "data")

    assert code == 1
    assert checks["data directory"]["mark"] == "fail"
    assert str(tmp_path / "data") in checks["data directory"]["detail"]
    assert "fsync" not in checks


def test_port_of_another_program_fails_and_names_it(tmp_path):
    """Also one that accepts connections and says nothing."""
    with listener() as port:
        code, checks = doctor(directory=tmp_path, listen=f"127.0.0.1:{port}")

    assert code == 1
    assert checks["port"]["mark"] == "fail"
    assert "another program" in checks["port"]["detail"]
    if sys.platform == "linux":
        assert "process" in checks["port"]["detail"]


@pytest.mark.parametrize(("host", "mark"), [("127.0.0.1", "ok"), ("no.such.host.invalid", "fail")])
def test_port_that_is_free_is_well(tmp_path, host, mark):
    """An address that is none is not."""
    _, checks = doctor(directory=tmp_path, listen=f"{host}:{free_port()}")

    assert checks["port"]["mark"] == mark


def test_broker_that_was_asked_for_and_is_not_there_fails(tmp_path):
    """One that nobody asked for may well be not there."""
    code, checks = doctor("--addr", f"127.0.0.1:{free_port()}", directory=tmp_path)

    assert (code, checks["broker"]["mark"]) == (1, "fail")
    assert "fila server" in checks["broker"]["detail"]


@contextmanager
def web_server():
    """Somebody who answers, and not in fila's protocol."""
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("somebody", [listener, web_server])
def test_what_listens_and_is_no_broker_is_said_to_be_none(tmp_path, monkeypatch, somebody):
    """What gRPC makes of silence, or of another protocol, tells nobody what to do."""
    monkeypatch.setattr("fila.cli.doctor.ANSWER_SECONDS", 0.5)
    with somebody() as port:
        code, checks = doctor("--addr", f"127.0.0.1:{port}", directory=tmp_path)

    assert (code, checks["broker"]["mark"]) == (1, "fail")
    assert (
        f"something listens at 127.0.0.1:{port} and does not speak fila's protocol"
        in checks["broker"]["detail"]
    )
    assert checks["broker"]["values"] == {"addr": f"127.0.0.1:{port}"}


def test_address_that_is_none_fails(tmp_path):
    """It is a finding as all others."""
    code, checks = doctor("--addr", "ftp://x", directory=tmp_path)

    assert (code, checks["broker"]["mark"]) == (1, "fail")
    assert "no address" in checks["broker"]["detail"]


def test_settings_are_those_of_the_server(tmp_path):
    """The file that --config names says where the data are; a wrong one is told as the server tells it."""
    data = tmp_path / "elsewhere"
    (tmp_path / "fila.toml").write_text(f'[storage]\ndata_dir = "{data}"\n', encoding="utf-8")
    runner = CliRunner()

    right = runner.invoke(main, ["doctor", "--config", str(tmp_path / "fila.toml")])
    wrong = runner.invoke(main, ["doctor", "--listen", "nonsense"])

    assert str(data) in right.stdout
    assert wrong.exit_code == 2
    assert "listen_addr" in wrong.stderr


@pytest.mark.parametrize(("seconds", "mark"), [(0.0005, Mark.OK), (0.05, Mark.WARN), (0.000001, Mark.WARN)])
def test_fsync_that_is_slow_or_hollow_is_a_warning(tmp_path, monkeypatch, seconds, mark):
    """A disk that takes long, and one that cannot have written."""
    now = [0.0]
    monkeypatch.setattr(findings.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(findings, "sync", lambda descriptor: now.__setitem__(0, now[0] + seconds))

    found = findings.fsync(tmp_path)

    assert found.mark is mark
    assert found.values["median_seconds"] == pytest.approx(seconds)


def test_fsync_that_fails_is_a_failure(tmp_path, monkeypatch):
    """With the system's reason."""

    def broken(descriptor):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(findings, "sync", broken)

    found = findings.fsync(tmp_path)

    assert found.mark is Mark.FAIL
    assert "Input/output error" in found.detail


@pytest.mark.parametrize(("reserve", "mark"), [(1, Mark.OK), (1 << 60, Mark.FAIL)])
def test_room_below_the_reserve_is_a_failure(tmp_path, monkeypatch, reserve, mark):
    """Below it the broker takes nothing."""
    monkeypatch.setattr(findings.limits, "DISK_FREE_BYTES_MIN", reserve)

    (found,) = [finding for finding in findings.disk(tmp_path) if finding.check == "free space"]

    assert found.mark is mark


def test_report_has_marks_and_wraps_under_itself():
    """As it stands at a terminal, colours left out."""
    found = [
        Finding("port", Mark.OK, "127.0.0.1:5555 is free"),
        Finding("file system", Mark.WARN, "tmpfs on /tmp: does not outlive the machine"),
        Finding("broker", Mark.FAIL, "none"),
    ]
    lines = list(map(plain, report(found, 40)))

    assert lines == [
        "✓ port         127.0.0.1:5555 is free",
        "! file system  tmpfs on /tmp: does not",
        "               outlive the machine",
        "✗ broker       none",
        "",
        "1 check fails, 1 warning.",
    ]
    assert plain(report(found[:1], 40)[-1]) == "All is well."
    assert plain(report(found[:2], 40)[-1]) == "Nothing fails, 1 warning."


def plain(text):
    """Leave the colours out."""
    for code in ("0", "1", "31", "32", "33"):
        text = text.replace(f"\x1b[{code}m", "")
    return text


@pytest.mark.parametrize("columns", [60, 100])
def test_report_fits_its_terminal(addr, tmp_path, columns):
    """At every width, with marks in colour."""
    shown, code = fila_at_terminal(
        "doctor", "--data-dir", tmp_path, "--listen", addr, "--addr", addr, columns=columns
    )

    assert code == 0
    assert "\x1b[32m" in shown
    lines = plain(shown).splitlines()
    assert max(map(len, lines)) <= columns
    assert [line for line in lines if line.startswith("✓ broker")]
