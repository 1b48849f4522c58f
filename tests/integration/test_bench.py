"""Every workload of `fila bench` runs against a real broker and says what it promises to say."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest

from fila.bench.process import ServerProcess, cpu_seconds, process_tree
from fila.wire.v1.admin_pb2 import ListQueuesRequest
from fila.wire.v1.admin_pb2_grpc import FilaAdminStub

COMMON = {"messages", "seconds", "msgs_per_s", "broker_cpu_us_per_msg"}
LATENCIES = {"p50_ms", "p99_ms"}
RESULTS = {
    "produce": COMMON | LATENCIES,
    "consume": COMMON | LATENCIES,
    "both": COMMON | LATENCIES,
    "unary": COMMON | LATENCIES,
    "latency": COMMON | LATENCIES | {"enqueue_p50_ms", "enqueue_p99_ms"},
    "keys": COMMON | {"cost_ratio", "cost_ratio_random"},
    "queues": COMMON | {"rss_kb_per_queue", "cost_ratio", "cost_ratio_frames", "restart_s"},
    "fairness": COMMON | {"max_share_error", "law_violations", "lone_message_wait", "overhead_over_fifo"},
    "backlog": COMMON | {"rss_base_mb", "rss_bytes_per_msg", "restart_s_per_million", "variants"},
    "client": COMMON | {"producer_cpu_us_per_msg", "loop_cpu_us_per_msg", "loop_ratio", "sync_ratio"},
}
# Small loads may cost less memory than there was to spare, and either discipline may win by chance.
ANY_SIGN = {"rss_kb_per_queue", "rss_bytes_per_msg", "overhead_over_fifo"}
MAY_BE_ZERO = {"max_share_error", "law_violations", "lone_message_wait"}


def run_bench(*arguments, **variables):
    return subprocess.run(
        [sys.executable, "-m", "fila", "bench", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | variables,
    )


def wait_for(condition, *, timeout_s=30):
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen"
        time.sleep(0.01)


@pytest.mark.parametrize("workload", RESULTS)
def test_workload_reports_what_it_promises(workload, tmp_path):
    """One JSON object with all named figures, each of them possible, and nothing left on the disk."""
    finished = run_bench(workload, "--quick", "--json", "--data-dir", str(tmp_path))

    assert finished.returncode == 0, finished.stderr
    report = json.loads(finished.stdout)
    assert list(report) == ["workload", "parameters", "results", "baseline", "fsync_ms"]
    assert report["workload"] == workload
    assert report["fsync_ms"] > 0
    assert report["parameters"]["payload_bytes"] == (100 if workload == "backlog" else 1024)
    results = report["results"]
    assert results.keys() >= RESULTS[workload]
    for name in RESULTS[workload] - ANY_SIGN - MAY_BE_ZERO - {"variants"}:
        assert results[name] > 0, name
    if {"p50_ms", "p99_ms"} <= results.keys():
        assert results["p50_ms"] <= results["p99_ms"]
    assert report["baseline"]["msgs_per_s"] > 0
    assert report["baseline"]["ratio"] == pytest.approx(
        results["msgs_per_s"] / report["baseline"]["msgs_per_s"], rel=0.01
    )
    assert list(tmp_path.iterdir()) == []


def test_fairness_of_a_real_broker_keeps_the_laws(tmp_path):
    """However small and slow the run is, the order of service is exact."""
    finished = run_bench("fairness", "--quick", "--json", "--data-dir", str(tmp_path))

    results = json.loads(finished.stdout)["results"]
    assert results["services_judged"] >= 1_000
    assert results["law_violations"] == 0
    assert results["max_share_error"] <= 0.01
    assert results["lone_message_wait"] <= 1


def test_table_is_for_people(tmp_path):
    """Without --json the same figures stand in a table."""
    finished = run_bench("produce", "--quick", "--data-dir", str(tmp_path))

    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.startswith("produce\n")
    assert "msgs_per_s" in finished.stdout


def test_unknown_workload_is_refused_by_name():
    """The answer lists those that there are."""
    finished = run_bench("prodcue")

    assert finished.returncode == 2
    assert "prodcue" in finished.stderr
    assert "latency" in finished.stderr


def test_broker_that_is_not_there_gets_one_sentence(tmp_path):
    """As with every other command; and the bare server, started in the meantime, is gone with its directory."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        finished = run_bench("latency", "--quick", "--addr", address, "--data-dir", str(tmp_path))

    assert list(tmp_path.iterdir()) == []
    assert finished.returncode == 6
    assert finished.stderr.splitlines() == [
        (
            f"No broker answers at {address}: start one with `fila server --listen {address}`, "
            "or say where it is with --addr."
        )
    ]


def test_running_broker_is_measured_and_left_as_it_was(tmp_path):
    """With --addr its process is found by its port, what needs a restart is unknown, and the bench's queues go."""
    broker = ServerProcess("fila", "server", parent_dir=tmp_path)
    try:
        broker.start()
        broker.wait_until_listening()
        finished = run_bench(
            "queues", "--quick", "--json", "--addr", broker.address, "--data-dir", str(tmp_path)
        )
        with grpc.insecure_channel(broker.address) as channel:
            left = FilaAdminStub(channel).ListQueues(ListQueuesRequest()).queues
    finally:
        broker.remove()

    assert finished.returncode == 0, finished.stderr
    results = json.loads(finished.stdout)["results"]
    assert results["broker_cpu_us_per_msg"] > 0
    assert results["restart_s"] is None
    assert list(left) == []


def test_bench_that_is_told_to_stop_takes_its_servers_with_it(tmp_path):
    """SIGTERM in the middle of a load leaves no process and no data behind."""
    bench = subprocess.Popen(
        [sys.executable, "-m", "fila", "bench", "both", "--data-dir", str(tmp_path)], stdout=subprocess.PIPE
    )
    try:
        wait_for(lambda: len(process_tree(bench.pid)) == 3)
        servers = process_tree(bench.pid)[1:]
        wait_for(lambda: max(map(cpu_seconds, servers)) > 1.0)
        bench.send_signal(signal.SIGTERM)
        bench.communicate(timeout=60)
    finally:
        bench.kill()

    assert bench.returncode == 130
    assert [server for server in servers if Path(f"/proc/{server}").exists()] == []
    assert list(tmp_path.iterdir()) == []
