"""The published figures are those that were recorded, beside the bars as they were set."""

import copy
import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load_script(name):
    specification = importlib.util.spec_from_file_location(name, ROOT / "bench" / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


document = load_script("document")

ENTRY = {
    "commit": "0123456789ab",
    "machine": {
        "cpu": "a processor",
        "cores": 2,
        "memory_gb": 8,
        "kernel": "6.1",
        "python": "3.11.0",
        "filesystem": "ext4",
    },
    "measured_at": "2026-01-01",
    "report": {
        "workload": "produce",
        "parameters": {"messages": None, "seconds": 5.0},
        "results": {"msgs_per_s": 100_000.0, "broker_cpu_us_per_msg": 6.9},
        "baseline": {"msgs_per_s": 250_000.0, "ratio": 0.4, "server_cpu_us_per_msg": 1.5},
        "fsync_ms": 0.2,
    },
}


@pytest.mark.skipif(not (ROOT / "bench" / "results.json").exists(), reason="nothing has been recorded yet")
def test_the_document_is_made_of_the_recorded_results():
    """docs/benchmarks.md was not edited and not forgotten."""
    results = json.loads((ROOT / "bench" / "results.json").read_text())

    assert (ROOT / "docs" / "benchmarks.md").read_text() == document.render(results)


def test_a_bar_is_reached_or_missed_in_plain_sight():
    """The same report with a worse figure changes its line, and nothing hides it."""
    worse = copy.deepcopy(ENTRY)
    worse["report"]["results"]["broker_cpu_us_per_msg"] = 7.1
    unknown = copy.deepcopy(ENTRY)
    unknown["report"]["results"]["broker_cpu_us_per_msg"] = None

    assert "at most 7 us | 6.9 us | reached |" in document.render({"produce": ENTRY})
    assert "at most 7 us | 7.1 us | **missed** |" in document.render({"produce": worse})
    assert "at most 7 us | unknown us | unknown |" in document.render({"produce": unknown})


def test_bars_that_depend_on_the_run_are_computed_from_it():
    """Latency is judged by the disk's own fsync, memory by the number of messages."""
    latency = {"results": {"p50_ms": 1.5, "p99_ms": 6.3}, "fsync_ms": 0.2}
    backlog = {
        "parameters": {"messages": 2_000_000},
        "results": {"variants": {"a": {"rss_full_mb": 300.0}, "b": {"rss_full_mb": 351.0}}},
    }
    verdict = {bar.what: bar for bar in document.BARS}

    assert verdict["p50, at most 3 x fsync + 1 ms"].reached(latency) is True
    assert verdict["p99, at most 6 x fsync + 5 ms"].reached(latency) is False
    assert verdict["memory, at most 150 MB + 100 B per message"].reached(backlog) is False
