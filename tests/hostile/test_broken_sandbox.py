"""The hostile scripts are worth their place: with any of these guards gone, one of them is not stopped, or gets something."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.hostile.run_scripts import cases

RUNNER = Path(__file__).with_name("run_scripts.py")
# Longer than all scripts of one group take together.
HANGS_AFTER_SECONDS = 2
CPU_MS_MAX = 30
EXPECTED = {name: outcome for name, outcome, _ in cases()}

# What is broken, the group of scripts that must notice, each guard and what stands in its place.
BREAKAGES = [
    ("the clock is not looked at", "loop: while", "elseif now > deadline then", "elseif false then"),
    (
        "the time begins anew at each look",
        "loop: while",
        "    deadline = now + seconds_per_message\n  elseif",
        "    deadline = nil\n  elseif",
    ),
    (
        "pcall goes on after the stop",
        "loop: pcall swallows",
        'sethook(thread, tick, "", 1)\n  raw_error',
        "sethook(thread)\n  raw_error",
        "(watch.stopped or problem == OUT_OF_MEMORY)",
        "(problem == OUT_OF_MEMORY)",
    ),
    (
        "pcall swallows a want of memory",
        "memory: doubling under",
        "(watch.stopped or problem == OUT_OF_MEMORY)",
        "watch.stopped",
    ),
    (
        "calls of C into one another are not counted",
        "loop: pcall",
        "if nested > NESTED_MAX then",
        "if false then",
    ),
    (
        "gmatch is there",
        "reach: no way to take strings",
        "safe_string.char = string.char",
        "safe_string.char, safe_string.gmatch = string.char, string.gmatch",
    ),
    (
        "setmetatable is there",
        "index: a result that runs",
        "    assert = assert,",
        "    assert = assert, setmetatable = setmetatable,",
    ),
    (
        "coroutines are there",
        "reach: no coroutines",
        "    assert = assert,",
        "    assert = assert, coroutine = coroutine,",
    ),
    ("load is there", "reach: load as", "    assert = assert,", "    assert = assert, load = load,"),
    (
        "the globals are the environment",
        "reach: io.open",
        "    assert = assert,",
        "    assert = assert, io = io,",
    ),
    ("os is there", "reach: os.getenv", "    assert = assert,", "    assert = assert, os = os,"),
    ("debug is there", "reach: debug.sethook", "    assert = assert,", "    assert = assert, debug = debug,"),
    (
        "methods of strings are Lua's own",
        "string metatable: methods",
        'getmetatable("").__index = safe_string',
        "local _",
    ),
    (
        "tostring is Lua's own",
        "reach: the address",
        'kind == "string" or kind == "number" or kind == "boolean" or kind == "nil" then return tostring',
        "true then return tostring",
    ),
    ("patterns are not counted", "pattern: ", "if steps > PATTERN_STEPS_MAX then", "if false then"),
    ("quantifiers cost nothing", "pattern: ", "for degree = 1, quantifiers do", "for degree = 1, 0 do"),
    (
        "rep is not bounded",
        "memory: rep",
        "if times > STRING_BYTES_MAX or times * size > STRING_BYTES_MAX then",
        "if false then",
    ),
    (
        "rep of nothing is counted out",
        "memory: rep of an empty",
        "if times <= 0 or size == 0 then",
        "if times > STRING_BYTES_MAX then times = 2 ^ 33 // 1 | 0 end if times <= 0 then",
    ),
    (
        "comparators run in C",
        "sort: ",
        "sort(values, is_less and function(a, b) return (is_less(a, b)) end or function(a, b) return a < b end)",
        "sort(values, is_less)",
    ),
    ("numbers are not compared", "result: ", "not (number >= 0 and number <= maximum)", "false"),
    (
        "text is not checked",
        "result: a key that is not UTF-8",
        "if not utf8_length(value) then",
        'if not utf8_length(value) then value = "evil" elseif false then',
    ),
]


def noticed(run):
    """Say what the scripts noticed, or nothing."""
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    if run.returncode != 0 or not lines or "end" not in lines[-1]:
        return "the process died"
    for report in lines[:-1]:
        expected = EXPECTED[report["name"]].encode().decode("unicode_escape")
        if expected not in ("any", report["outcome"]):
            return f"{report['name']}: {report['outcome']}"
        if report["wrong_neighbours"] or report["cpu_ms"] > CPU_MS_MAX:
            return f"{report['name']}: {report['cpu_ms']} ms, neighbours {report['wrong_neighbours']}"
    return ""


@pytest.mark.parametrize(
    ("group", "changes"), [(each[1], each[2:]) for each in BREAKAGES], ids=[each[0] for each in BREAKAGES]
)
def test_a_guard_that_is_gone_is_missed(group, changes, tmp_path):
    """An outcome that is not as expected, a time, a hang or a death."""
    try:
        run = subprocess.run(
            [sys.executable, RUNNER, group, *changes],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=HANGS_AFTER_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return

    # A change that our own code does not survive would prove nothing.
    assert run.stderr == ""
    assert noticed(run)
