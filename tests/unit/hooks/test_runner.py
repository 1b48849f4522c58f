"""Failing hooks: what they cost their message, their batch and themselves; and the configuration that hooks read."""

import pytest
from tests.unit.hooks.messages import Clock, batch, body, error, failure, hooks, on_enqueue, routed

from fila import limits
from fila.errors import InvalidArgumentError
from fila.hooks.policy import BreakerState, Fault, HookError
from fila.limits import MS_NS

FAILS_ON_BAD = on_enqueue("""
  if msg.headers.bad == "error" then error("no") end
  if msg.headers.bad == "loop" then while true do end end
  if msg.headers.bad == "memory" then local s = "x" while true do s = s .. s end end
  if msg.headers.bad == "result" then return {weight = -1} end
  return {fairness_key = msg.headers.t, cost = 2}""")


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        ("error", HookError(Fault.SCRIPT, "no", 3)),
        ("loop", HookError(Fault.TIME, "stopped after 10 ms", 4)),
        ("memory", HookError(Fault.MEMORY, "stopped: more than 1,048,576 bytes of memory", 5)),
        (
            "result",
            HookError(
                Fault.RESULT, "on_enqueue returned weight = -1: a number from 0 to 1000000 was expected"
            ),
        ),
    ],
)
def test_a_message_that_fails_leaves_its_neighbours_alone(bad, expected):
    """It gets the defaults and its error with its line; the others get what the hook says."""
    bodies = [body(t=str(number), bad=bad if number == 2 else "") for number in range(6)]

    routings = hooks(FAILS_ON_BAD).route(*batch(*bodies))

    assert routings.errors == {2: expected}
    assert [routings.of(place).fairness_key for place in range(6)] == ["0", "1", "", "3", "4", "5"]
    assert list(routings.costs) == [2, 2, 0, 2, 2, 2]
    assert routings.decided == 6


def test_errors_carry_no_position_of_ours():
    """The author of a script knows lines of the script alone."""
    found = error('local x = 1\nlocal y = ("x"):find("[")')

    assert found == HookError(Fault.SCRIPT, "malformed pattern (missing ']')", 3)


@pytest.mark.parametrize("value", ["{}", "nil", "true", "type"])
def test_errors_that_are_no_text_are_named_by_their_type(value):
    """And nothing is read in them."""
    assert error(f"error({value})").fault is Fault.SCRIPT


def test_long_errors_of_scripts_are_cut():
    """They are stored and shown."""
    assert len(error('error(("x"):rep(60000))').message) <= limits.ERROR_BYTES_MAX


def test_the_state_of_a_script_survives_its_errors_and_not_its_stop():
    """A runtime after a stop is not fit for use."""
    source = "count = 0\n" + FAILS_ON_BAD.replace("cost = 2", "cost = count").replace(
        "(msg)", "(msg) count = count + 1"
    )
    one = hooks(source)

    after_error = one.route(*batch(body(bad="error"), body()))
    after_stop = one.route(*batch(body(bad="loop"), body()))

    assert (after_error.of(1).cost, after_stop.of(1).cost) == (2, 1)
    assert one.status["on_enqueue"].rebuilds == 1


def test_three_failures_in_a_row_pass_the_rest_by():
    """Within a batch as between batches; whoever was passed by is told from whoever failed."""
    bodies = [body(t=str(number), bad="error" if 2 <= number < 5 else "") for number in range(10)]
    clock = Clock()
    one = hooks(FAILS_ON_BAD, clock=clock)

    routings = one.route(*batch(*bodies))

    assert sorted(routings.errors) == [2, 3, 4]
    assert routings.decided == 5
    assert [routings.of(place).fairness_key for place in (1, 5, 9)] == ["1", "", ""]
    status = one.status["on_enqueue"]
    assert (status.executions, status.failures, status.bypassed) == (5, 3, 5)
    assert (status.breaker, status.last_error.line) == (BreakerState.OPEN, 3)


def test_half_open_one_message_shows_the_way():
    """If it fails the rest is passed by; if not, the hook is asked again."""
    clock = Clock()
    one = hooks(FAILS_ON_BAD, clock=clock)
    bad, good = body(bad="error"), body(t="good")
    one.route(*batch(bad, bad, bad))

    clock.now_ns += 10_000 * MS_NS
    still_bad = one.route(*batch(bad, good, good))
    clock.now_ns += 10_000 * MS_NS
    works = one.route(*batch(good, bad, good))

    assert (sorted(still_bad.errors), still_bad.decided) == ([0], 1)
    assert (sorted(works.errors), works.decided) == ([1], 3)
    assert works.of(2).fairness_key == "good"


def test_failures_add_up_over_calls():
    """Single messages are batches of one."""
    one = hooks(FAILS_ON_BAD)

    states = []
    for bad in ("error", "error", "", "error", "result", "memory", ""):
        one.route(*batch(body(bad=bad)))
        states.append(one.status["on_enqueue"].breaker)

    assert states[:5] == [BreakerState.CLOSED] * 5
    assert states[5:] == [BreakerState.OPEN] * 2


def test_the_breakers_of_the_two_hooks_are_apart():
    """A broken on_failure does not change who messages belong to."""
    one = hooks(FAILS_ON_BAD, "function on_failure() error('x') end")

    one.judge([failure()] * 5)

    assert one.status["on_failure"].breaker is BreakerState.OPEN
    assert one.route(*batch(body(t="a"))).of(0).fairness_key == "a"


@pytest.mark.parametrize(
    "bad",
    [
        b"\x12",
        b"\x12\x05\x0a",
        b"\x12\x7f\x0a\x01a\x12\x01b",
        b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x0b\x0b",
        b"\x12\x04\x0a\x7fab",
        b"\x80",
    ],
)
def test_a_malformed_body_is_its_senders_fault(bad):
    """It has the defaults and opens no breaker; what comes after it is read as if nothing had been."""
    one = hooks(FAILS_ON_BAD)

    routings = one.route(*batch(body(t="a"), *[bad] * 5, body(t="b")))

    assert {each.fault for each in routings.errors.values()} == {Fault.MESSAGE}
    assert {each.message for each in routings.errors.values()} == {"the body of the message is malformed"}
    assert (routings.of(0).fairness_key, routings.of(6).fairness_key) == ("a", "b")
    assert one.status["on_enqueue"].breaker is BreakerState.CLOSED


@pytest.mark.parametrize(
    "headers",
    [
        {str(number): "" for number in range(limits.HOOK_HEADERS_MAX + 1)},
        {"a": "x" * limits.HOOK_HEADER_BYTES_MAX},
    ],
)
def test_more_headers_than_a_hook_is_given_are_the_senders_fault(headers):
    """A producer cannot make a script run out of memory or time."""
    one = hooks(FAILS_ON_BAD)

    routings = one.route(*batch(body(t="a"), *[body(**headers)] * 5, body(t="b")))

    assert {each.fault for each in routings.errors.values()} == {Fault.MESSAGE}
    assert routings.of(6).fairness_key == "b"
    assert one.status["on_enqueue"].breaker is BreakerState.CLOSED


def test_a_batch_of_any_size_is_cut_into_calls():
    """The columns are those of one call."""
    bodies = [body(b"x" * (number % 7 * 20_000), t=f"t{number % 13}") for number in range(1000)]

    routings = routed(
        "return {fairness_key = msg.headers.t, weight = tonumber(msg.headers.t:sub(2)), "
        "throttle_keys = {msg.headers.t}, delay_ms = msg.payload_size}",
        *bodies,
    )

    assert not routings.errors
    assert routings.decided == 1000
    for place in range(1000):
        routing = routings.of(place)
        assert routing.fairness_key == f"t{place % 13}"
        assert routing.weight == place % 13
        assert routing.throttle_keys == (f"t{place % 13}",)
        assert routing.delay_ms == place % 7 * 20_000
    assert len(routings.keys) == 13


def test_a_batch_that_takes_too_long_in_all_is_let_go():
    """Messages that each stay below their time do not hold everybody up for seconds."""
    slow = "local n = 0 for i = 1, 150000 do n = n + 1 end return {fairness_key = 'slow'}"

    routings = routed(slow, *[body()] * 1000, timeout_ms=50, breaker_threshold=1_000_000)

    assert 0 < routings.decided < 1000
    assert list({each.fault for each in routings.errors.values()}) == [Fault.BATCH]
    assert routings.of(routings.decided - 2).fairness_key == "slow"
    assert routings.of(999).fairness_key == ""


def test_stops_of_one_batch_are_bounded_in_all():
    """Also where no three come in a row."""
    bodies = [body(bad="loop" if number % 2 else "", t="t") for number in range(200)]

    routings = hooks(FAILS_ON_BAD).route(*batch(*bodies))

    assert 10 <= len(routings.errors) <= 13
    assert routings.decided < 30


def test_memory_that_a_script_keeps_leads_to_a_fresh_runtime():
    """Before a call, not in it: a full heap could not even take the arguments."""
    source = "kept = {}\n" + on_enqueue("kept[#kept + 1] = ('x'):rep(50000) .. #kept return {cost = #kept}")
    one = hooks(source)

    routings = [one.route(*batch(body())) for _ in range(100)]

    assert not any(each.errors for each in routings)
    assert 3 < max(each.of(0).cost for each in routings) < 21
    assert one.status["on_enqueue"].rebuilds > 3


def test_memory_is_bounded_as_set():
    """What fits in 1 MiB does not fit in 256 KiB."""
    statements = "local t = {} for i = 1, 8 do t[i] = ('x'):rep(50000) .. i end return {cost = 1}"

    assert not routed(statements).errors
    assert routed(statements, memory_bytes=256 * limits.KIB).errors[0].fault is Fault.MEMORY


def test_the_time_is_bounded_as_set():
    """A longer time lets a slow script come to its end."""
    statements = "local n = 0 for i = 1, 3000000 do n = n + 1 end return {cost = 1}"

    assert routed(statements).errors[0].fault is Fault.TIME
    assert not routed(statements, timeout_ms=2_000).errors


def test_hooks_read_the_configuration():
    """A string or nil; changed and deleted keys at the next message, globals kept."""
    one = hooks(
        "count = 0\n" + on_enqueue("count = count + 1 return {fairness_key = fila.get('who'), cost = count}")
    )

    seen = []
    for config in ({}, {"who": "a"}, {"who": "b", "x": "y"}, {"x": "y"}):
        one.set_config(config)
        routing = one.route(*batch(body())).of(0)
        seen.append((routing.fairness_key, routing.cost))

    assert seen == [("", 1), ("a", 2), ("b", 3), ("", 4)]


def test_the_configuration_survives_a_fresh_runtime():
    """A stop does not forget it."""
    one = hooks(
        on_enqueue("if msg.headers.bad then while true do end end return {fairness_key = fila.get('who')}")
    )
    one.set_config({"who": "a"})

    routings = one.route(*batch(body(bad="x"), body()))

    assert routings.of(1).fairness_key == "a"


def test_a_large_configuration_leaves_the_script_its_memory():
    """It counts as the broker's; and beyond its bound it is refused."""
    one = hooks(
        on_enqueue(
            "local t = {} for i = 1, 10 do t[i] = ('x'):rep(60000) .. i end return {fairness_key = fila.get('k4999')}"
        )
    )
    config = {f"k{number}": "v" * 130 for number in range(5_000)}

    one.set_config(config)
    routings = [one.route(*batch(*[body(t="t" * 100)] * 5)) for _ in range(3)]

    assert not any(each.errors for each in routings)
    assert routings[0].of(4).fairness_key == "v" * 130
    with pytest.raises(InvalidArgumentError, match="runtime configuration takes"):
        one.set_config({f"k{number}": "v" * 1000 for number in range(1_000)})


def test_keys_of_the_configuration_are_text():
    """A mistake is named, with the script's line."""
    assert error("local x = fila.get(1)") == HookError(
        Fault.SCRIPT, "get: a string was expected, not a number", 2
    )


def test_a_deeply_used_configuration_costs_no_call_into_python():
    """Nothing of Python is in the runtime."""
    assert error("return fila.get.x").message.startswith("attempt to index a function value")


def test_a_batch_of_nothing_is_nothing():
    """Whatever the edge lets through."""
    routings = hooks(FAILS_ON_BAD).route(b"", [])

    assert (routings.count, routings.decided, routings.errors) == (0, 0, {})


def test_without_a_hook_everything_is_left_open():
    """A queue may have only the other one."""
    routings = hooks(on_failure="function on_failure() end").route(*batch(body(), body()))

    assert (routings.count, routings.decided) == (2, 0)
    assert routings.of(1).fairness_key == ""
