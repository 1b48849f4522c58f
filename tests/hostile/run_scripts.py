"""Runs every hostile script between innocent messages and prints a JSON line for each: started as a process of its own.

Outside of Lua everything is as in a broker; if a script kills the process, its line is missing.
"""

import json
import os
import re
import sys
import time
from pathlib import Path

from fila.errors import InvalidArgumentError
from fila.hooks import lua
from fila.hooks.runner import Hooks, HookSettings
from fila.wire.v1.messages_pb2 import Body

LUA_FILES = ("driver.lua", "sandbox.lua", "body.lua", "json.lua", "protobuf.lua")
SCRIPTS = Path(__file__).with_name("scripts.lua")
INNOCENTS = 8
EVIL_PLACE = 3
HOOK = """
local type = type
local function show(value) return type(value) end
local function hostile(msg)
{body}
end
function on_enqueue(msg)
  local evil = msg.headers.evil
  if evil then
    return hostile(msg)
  end
  return {{fairness_key = msg.headers.tenant, weight = 2, throttle_keys = {{"all", msg.headers.tenant}}}}
end
"""


def cases():
    """Return name, expected outcome and body of each script."""
    text = SCRIPTS.read_text(encoding="utf-8")
    parts = re.split(r"^--- (.*) \| (.*)\n", text, flags=re.MULTILINE)
    return list(zip(parts[1::3], parts[2::3], parts[3::3], strict=True))


def batch():
    """Return a batch with one message that the script is hostile to."""
    bodies = []
    for number in range(INNOCENTS + 1):
        headers = {"tenant": f"tenant-{number}"}
        if number == EVIL_PLACE:
            headers |= {"evil": "yes", "__index": "1", "__gc": "2", "end": "3", "": "", "headers": "x"}
        bodies.append(Body(headers=headers, payload=b"{}").SerializeToString())
    return b"".join(bodies), [len(body) for body in bodies]


def peak_mib():
    """Return the most memory that this process ever had, where the system says it of the process alone."""
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text(encoding="utf-8")) if status.exists() else None
    return int(found[1]) / 1024 if found else 0


def run(name, body):
    """Run one script and tell what came of it."""
    source = HOOK.format(body=body)
    started = time.process_time()
    try:
        hooks = Hooks("orders", source, None, HookSettings(), time.monotonic_ns)
    except InvalidArgumentError as error:
        return {"name": name, "outcome": f"refused: {error}"}
    built = time.process_time()
    routings = hooks.route(*batch())
    cpu_ms = (time.process_time() - built) * 1000
    hooks.set_config({"after": "it"})
    error = routings.errors.get(EVIL_PLACE)
    evil = routings.of(EVIL_PLACE)
    return {
        "name": name,
        "outcome": error.fault.value if error else f"key {evil.fairness_key}".rstrip(),
        "error": str(error) if error else "",
        "line": error.line if error else 0,
        "evil": repr(evil),
        "build_ms": (built - started) * 1000,
        "cpu_ms": cpu_ms,
        "wrong_neighbours": [
            number
            for number in range(INNOCENTS + 1)
            if number != EVIL_PLACE
            and (
                number in routings.errors
                or routings.of(number).fairness_key != f"tenant-{number}"
                or routings.of(number).weight != 2
                or routings.of(number).throttle_keys != ("all", f"tenant-{number}")
            )
        ],
        "decided": routings.decided,
        "after": [routing.fairness_key for routing in map(hooks.route(*batch()).of, (0, INNOCENTS))],
        "peak_mib": peak_mib(),
    }


def break_sandbox(changes):
    """Replace pieces of our own Lua, each with what follows it in the list, to see that the scripts notice."""
    texts = {name: lua._text_of(name) for name in LUA_FILES}
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert sum(text.count(old.encode()) for text in texts.values()) == 1, old
        texts = {name: text.replace(old.encode(), new.encode()) for name, text in texts.items()}
    lua._text_of = texts.__getitem__


def main():
    """Run the scripts whose name contains the first argument, or all; further ones break the sandbox first."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    break_sandbox(sys.argv[2:])
    environment = dict(os.environ)
    for name, _, body in cases():
        if wanted in name:
            report = run(name, body)
            report["environment_kept"] = dict(os.environ) == environment
            print(json.dumps(report), flush=True)  # noqa: T201 - read by the test
    print(json.dumps({"end": True}), flush=True)  # noqa: T201 - the last line says that nothing killed the process


if __name__ == "__main__":
    main()
