"""What on_enqueue is given, and the rules of each field that it returns."""

import pytest
from tests.unit.hooks.messages import answer, batch, body, error, hooks, on_enqueue, routed

from fila import limits
from fila.errors import InvalidArgumentError
from fila.hooks.policy import Fault, Routing, Routings


def test_the_contract_of_the_first_screen():
    """Headers in; key, weight and throttle keys out."""
    routing = answer(
        'return {fairness_key = msg.headers.tenant, weight = 3, throttle_keys = {"provider:" .. msg.headers.provider}}',
        tenant="acme",
        provider="stripe",
    )

    assert routing == Routing(fairness_key="acme", weight=3, throttle_keys=("provider:stripe",))


def test_all_fields_that_a_hook_may_return():
    """The further fields of this broker."""
    routing = answer(
        'return {fairness_key = "k", weight = 2, cost = 5, delay_ms = 1500,'
        ' throttle_keys = {"a", "b"}, concurrency_keys = {"c"}}'
    )

    assert routing == Routing("k", 2, 5, 1500, ("a", "b"), ("c",))


@pytest.mark.parametrize("statements", ["", "return nil", "return {}"])
def test_what_a_hook_leaves_open_stays_open(statements):
    """No field is invented: defaults are the host's."""
    routings = routed(statements)

    assert routings == Routings(1, keys=[""], decided=1)
    assert routings.of(0) == Routing()


def test_columns_are_left_out_where_nothing_is_said():
    """The core is spared columns that say nothing; a column begins for all as soon as one message speaks."""
    said = 'if msg.headers.n == "2" then return {cost = 7, concurrency_keys = {"c"}} end'

    routings = routed(said, *(body(n=str(number)) for number in range(5)))

    assert routings.weights is None
    assert routings.key_index is None
    assert list(routings.costs) == [0, 0, 7, 0, 0]
    assert [routings.concurrency_keys.of(place) for place in range(5)] == [(), (), ("c",), (), ()]


def test_distinct_keys_come_once():
    """Keys are listed in order of appearance, and messages point at them."""
    routings = routed(
        "return {fairness_key = msg.headers.t, throttle_keys = {msg.headers.t, 'all'}}",
        *(body(t=tenant) for tenant in "abacab"),
    )

    assert list(routings.keys) == ["a", "b", "c"]
    assert list(routings.key_index) == [0, 1, 0, 2, 0, 1]
    assert list(routings.throttle_keys.lists) == [("a", "all"), ("b", "all"), ("c", "all")]
    assert list(routings.throttle_keys.index) == [1, 2, 1, 3, 1, 2]


def test_a_hook_is_given_headers_payload_size_and_queue():
    """What the contract names, and the payload only where the source names it."""
    source = on_enqueue(
        'return {fairness_key = msg.headers.a .. msg.payload_size .. msg.queue .. tostring(msg["pay" .. "load"])}'
    )

    routings = hooks(source).route(*batch(body(b"12345", a="x")))

    assert routings.of(0).fairness_key == "x5ordersnil"


def test_the_payload_is_given_where_the_source_names_it():
    """Bytes as they came, empty where there are none."""
    routings = routed(
        'return {fairness_key = "<" .. msg.payload:sub(1, 3) .. ">", cost = #msg.payload}',
        body(b"abc\0\xff"),
        body(),
    )

    assert [routings.of(place).fairness_key for place in (0, 1)] == ["<abc>", "<>"]
    assert list(routings.costs) == [5, 0]


def test_payload_size_alone_does_not_ask_for_the_payload():
    """A large payload in a small heap: were it handed over, the script would end for want of memory."""
    big = body(b"x" * (3 * limits.MIB))

    routings = routed("return {cost = msg.payload_size}", big, memory_bytes=64 * limits.KIB)

    assert list(routings.costs) == [3 * limits.MIB]


def test_a_large_payload_is_read_beside_small_messages():
    """What arrives does not count as the script's memory."""
    bodies = [body(b"small"), body(b"x" * (limits.BODY_BYTES_MAX - 100)), body(b"small")]

    routings = routed("return {cost = #msg.payload}", *bodies)

    assert not routings.errors
    assert list(routings.costs) == [5, limits.BODY_BYTES_MAX - 100, 5]


def test_each_message_has_tables_of_its_own():
    """What a script does to one message is not seen at the next."""
    routings = routed(
        'local seen = msg.headers.mark msg.headers.mark = "seen" return {fairness_key = seen or "new"}',
        body(),
        body(),
    )

    assert [routings.of(place).fairness_key for place in (0, 1)] == ["new", "new"]


def test_a_script_may_return_the_same_table_again():
    """What is returned is read at once."""
    source = "local result = {}\n" + on_enqueue("result.fairness_key = msg.headers.t return result")

    routings = hooks(source).route(*batch(body(t="a"), body(t="b")))

    assert [routings.of(place).fairness_key for place in (0, 1)] == ["a", "b"]


def test_globals_live_on_between_calls_and_are_the_queues_own():
    """Each queue has its own state."""
    source = "count = 0\n" + on_enqueue("count = count + 1 return {cost = count}")
    one, other = hooks(source), hooks(source)

    costs = [each.route(*batch(body())).of(0).cost for each in (one, one, other)]

    assert costs == [1, 2, 1]


@pytest.mark.parametrize(
    ("value", "expected"),
    [("1", 1), ("3.0", 3), ('"3"', 3), (str(limits.WEIGHT_MAX), limits.WEIGHT_MAX), ("0", 0)],
)
def test_a_weight_is_a_whole_number(value, expected):
    """0 leaves it open; text that is a number is one, for headers are text."""
    assert answer(f"return {{weight = {value}}}").weight == expected


@pytest.mark.parametrize("field", ["weight", "cost", "delay_ms"])
@pytest.mark.parametrize(
    "value", ["-1", "0/0", "1/0", "-1/0", "2^63", "{}", "true", '"x"', '""', "1e300", "print"]
)
def test_numbers_that_are_none_are_refused(field, value):
    """With the field, the value or its type, and what is allowed."""
    if value == "print":
        value = "type"

    refused = error(f"return {{{field} = {value}}}")

    assert refused.fault is Fault.RESULT
    assert f"on_enqueue returned {field} = " in refused.message
    assert "from 0 to " in refused.message


def test_bounds_of_numbers():
    """Just beyond is refused, and a fraction of a weight is no weight."""
    assert error(f"return {{weight = {limits.WEIGHT_MAX + 1}}}").fault is Fault.RESULT
    assert error(f"return {{cost = {limits.COST_MAX + 1}}}").fault is Fault.RESULT
    assert error(f"return {{delay_ms = {limits.DELAY_MS_MAX + 1}}}").fault is Fault.RESULT
    assert "whole number" in error("return {weight = 2.5}").message


def test_costs_and_delays_are_rounded_up():
    """They are computed more often than written down."""
    routing = answer("return {cost = 1.2, delay_ms = 99.01}")

    assert (routing.cost, routing.delay_ms) == (2, 100)


@pytest.mark.parametrize(("value", "key"), [('"a"', "a"), ("42", "42"), ('""', ""), ('"\\u{1F600}"', "😀")])
def test_a_fairness_key_is_text_or_a_whole_number(value, key):
    """Tenants are often numbers."""
    assert answer(f"return {{fairness_key = {value}}}").fairness_key == key


@pytest.mark.parametrize("value", ["{}", "true", "1.5", "0/0", "string.char(255)", 'string.rep("x", 257)'])
def test_fairness_keys_that_are_none_are_refused(value):
    """The same bound as for a key that a producer names."""
    refused = error(f"return {{fairness_key = {value}}}")

    assert refused.fault is Fault.RESULT
    assert "fairness_key" in refused.message


def test_a_key_of_256_bytes_is_taken():
    """The bound itself is allowed."""
    assert answer('return {fairness_key = string.rep("x", 256)}').fairness_key == "x" * 256


@pytest.mark.parametrize("field", ["throttle_keys", "concurrency_keys"])
def test_lists_of_keys(field):
    """In order, each once, whole numbers as text."""
    assert getattr(answer(f'return {{{field} = {{"b", 7, "a", "b"}}}}'), field) == ("b", "7", "a")
    assert getattr(answer(f"return {{{field} = {{}}}}"), field) == ()


@pytest.mark.parametrize("field", ["throttle_keys", "concurrency_keys"])
@pytest.mark.parametrize(
    "value", ['"a"', "1", '{a = "b"}', '{nil, "a"}', '{""}', "{true}", "{{}}", "{string.char(255)}", "{1.5}"]
)
def test_lists_that_are_none_are_refused(field, value):
    """A list is a table of strings without gaps."""
    refused = error(f"return {{{field} = {value}}}")

    assert refused.fault is Fault.RESULT
    assert field in refused.message


def test_a_message_has_at_most_sixteen_gates_of_a_kind():
    """The bound itself is allowed; one more names the bound."""
    make = "local keys = {{}} for i = 1, {count} do keys[i] = 'k' .. i end return {{throttle_keys = keys}}"

    assert len(answer(make.format(count=16)).throttle_keys) == 16
    assert "more than 16 keys" in error(make.format(count=17)).message


def test_keys_that_join_to_the_same_text_are_told_apart():
    """Lists are compared key by key, whatever is in them."""
    routings = routed(
        r'return {throttle_keys = msg.headers.n == "1" and {"a\0b"} or {"a", "b"}}', body(n="1"), body(n="2")
    )

    assert [routings.throttle_keys.of(place) for place in (0, 1)] == [("a\0b",), ("a", "b")]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("function on_enqueue(msg)\n  return {\nend", "on_enqueue, line 3: unexpected symbol near 'end'"),
        ("local x = 1", "on_enqueue: the script does not define the function on_enqueue"),
        ("on_enqueue = 5", "on_enqueue: the script does not define the function on_enqueue"),
        ("\n\nerror('no')", "on_enqueue, line 3: no"),
        ("local x = nil\nx.y = 1", "on_enqueue, line 2: attempt to index a nil value (local 'x')"),
        ("while true do end", "on_enqueue, line 1: it did not end within 10 ms"),
        ("local s = 'x' while true do s = s .. s end", "on_enqueue, line 1: not enough memory"),
        ("\x1bLua", "attempt to load a binary chunk"),
        ("-- " + "x" * limits.HOOK_SOURCE_BYTES_MAX, "at most 65,536 bytes"),
        ("\ud800", "is no text"),
        ("return " + "(" * 300 + ")" * 300, "on_enqueue: C stack overflow"),
    ],
)
def test_a_script_that_cannot_be_a_hook_is_refused_with_line_and_reason(source, reason):
    """At creation, where somebody reads it."""
    with pytest.raises(InvalidArgumentError) as refused:
        hooks(source)

    assert reason in refused.value.message
