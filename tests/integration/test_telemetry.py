"""Telemetry against a real OTLP receiver on a free loopback port."""

import asyncio
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from fila import AsyncClient, assembly
from fila.client.values import NewMessage
from fila.config import ServerSettings, Settings, StorageSettings, TelemetrySettings
from fila.telemetry.metrics import NoTelemetry, Telemetry
from fila.telemetry.otel import OTHER_QUEUES, QUEUES_MAX, SHUTDOWN_TIMEOUT_S, OtelTelemetry
from fila.wire.v1 import service_pb2, service_pb2_grpc


class Collector(metrics_service_pb2_grpc.MetricsServiceServicer):
    """Keep what arrives: the last state of every metric, and all spans."""

    def __init__(self):
        self.metrics = {}
        self.spans = []
        self.resources = []
        self.exported = threading.Event()
        self.refuses = False

    def Export(self, request, context):  # noqa: N802 - the name in the protocol
        if self.refuses:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "not now")
        for resource_metrics in request.resource_metrics:
            self.resources.append(resource_metrics.resource)
            for scope_metrics in resource_metrics.scope_metrics:
                self.metrics.update({metric.name: metric for metric in scope_metrics.metrics})
        self.exported.set()
        return metrics_service_pb2.ExportMetricsServiceResponse()

    def count(self, name, **labels):
        points = self.metrics[name].sum.data_points
        return sum(point.as_int for point in points if labels.items() <= attributes_of(point).items())


class Traces(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, collector):
        self._collector = collector

    def Export(self, request, context):  # noqa: N802 - the name in the protocol
        for resource_spans in request.resource_spans:
            for scope_spans in resource_spans.scope_spans:
                self._collector.spans.extend(scope_spans.spans)
        return trace_service_pb2.ExportTraceServiceResponse()


def attributes_of(record):
    """Return attributes as plain values by name."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in record.attributes}


@pytest.fixture
def collector():
    """Run a receiver and give it back with its port."""
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(max_workers=2))
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(collector, server)
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Traces(collector), server)
    collector.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield collector
    server.stop(0).wait()


def telemetry_to(port, interval_ms=60_000) -> Telemetry:
    """Return telemetry that only a stop flushes, unless `interval_ms` is short."""
    return OtelTelemetry(
        endpoint=f"http://127.0.0.1:{port}", service_name="fila-under-test", metrics_interval_ms=interval_ms
    )


def test_counters_arrive_with_their_queue_and_name(collector):
    """What the broker counts is what the collector stores."""
    telemetry = telemetry_to(collector.port)

    telemetry.enqueued("orders", 100, 5_000)
    telemetry.enqueued("orders", 50, 2_000)
    telemetry.enqueued("mails", 1, 10)
    telemetry.delivered("orders", 120, 20)
    for action, messages in [("ack", 90), ("nack", 7), ("expire", 5), ("release", 3), ("extend", 2)]:
        telemetry.settled("orders", action, messages)
    telemetry.shutdown()

    assert collector.count("fila.messages.enqueued", queue="orders") == 150
    assert collector.count("fila.messages.enqueued", queue="mails") == 1
    assert collector.count("fila.messages.enqueued.size", queue="orders") == 7_000
    assert collector.count("fila.messages.delivered", queue="orders") == 120
    assert collector.count("fila.messages.retried", queue="orders") == 20
    assert collector.count("fila.messages.acked") == 90
    assert collector.count("fila.messages.nacked") == 7
    assert collector.count("fila.messages.expired") == 5
    assert collector.count("fila.messages.released") == 3
    assert collector.count("fila.messages.extended") == 2
    assert attributes_of(collector.resources[0])["service.name"] == "fila-under-test"


def test_durations_arrive_in_seconds(collector):
    """Scheduler rounds, commit and sync times."""
    telemetry = telemetry_to(collector.port)

    telemetry.step(3, 200_000)
    telemetry.commit(150, 7_000, 300_000, 4_000_000)
    telemetry.commit(1, 10, 100_000, 0)
    telemetry.shutdown()

    def histogram(name):
        metric = collector.metrics[name]
        return metric.unit, metric.histogram.data_points[0]

    unit, step = histogram("fila.scheduler.step.duration")
    assert (unit, step.count) == ("s", 1)
    assert step.sum == pytest.approx(0.0002)
    assert histogram("fila.commit.write.duration")[1].count == 2
    unit, sync = histogram("fila.commit.sync.duration")
    assert (unit, sync.count) == ("s", 1)
    assert sync.sum == pytest.approx(0.004)
    assert histogram("fila.commit.messages")[1].sum == 151


def test_spans_arrive_with_the_times_and_attributes_given(collector):
    """A span is reported once it is over, with the host's own times."""
    telemetry = telemetry_to(collector.port)

    telemetry.span("fila.enqueue", 1_000_000_000, 1_000_500_000, {"queue": "orders", "messages": 5})
    telemetry.shutdown()

    (span,) = collector.spans
    assert span.name == "fila.enqueue"
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (1_000_000_000, 1_000_500_000)
    assert attributes_of(span) == {"queue": "orders", "messages": 5}


def test_metrics_arrive_at_the_interval_without_a_stop(collector):
    """`metrics_interval_ms` is what it says."""
    telemetry = telemetry_to(collector.port, interval_ms=100)

    telemetry.enqueued("orders", 1, 1)

    assert collector.exported.wait(10)
    telemetry.shutdown()


def test_queue_names_are_bounded(collector):
    """Beyond the limit queues are counted together, and nothing is lost."""
    telemetry = telemetry_to(collector.port)

    for number in range(QUEUES_MAX + 10):
        telemetry.enqueued(f"queue-{number}", 1, 1)
    telemetry.shutdown()

    assert collector.count("fila.messages.enqueued") == QUEUES_MAX + 10
    assert collector.count("fila.messages.enqueued", queue=OTHER_QUEUES) == 10


def test_a_collector_that_is_away_neither_fails_nor_holds_up_the_broker(unused_port):
    """No call blocks, and a stop is bounded."""
    telemetry = telemetry_to(unused_port, interval_ms=100)
    started = time.monotonic()

    for _ in range(1_000):
        telemetry.enqueued("orders", 1, 1)
        telemetry.span("fila.enqueue", 1, 2, {})
    reported = time.monotonic()
    telemetry.shutdown()

    assert reported - started < 2
    assert time.monotonic() - reported < SHUTDOWN_TIMEOUT_S / 2


def test_exports_that_fail_and_those_that_arrive_again_are_told_of_once(collector, caplog):
    """The log says when it began and when it ended, not how often it was tried."""
    caplog.set_level(logging.INFO, "fila.telemetry.collector")
    told = threading.Semaphore(0)
    handler = logging.Handler()
    handler.emit = lambda _: told.release()
    logger = logging.getLogger("fila.telemetry.collector")
    logger.addHandler(handler)
    collector.refuses = True
    telemetry = telemetry_to(collector.port, interval_ms=100)
    try:
        telemetry.enqueued("orders", 1, 1)
        assert told.acquire(timeout=10)
        collector.refuses = False
        assert told.acquire(timeout=10)
    finally:
        telemetry.shutdown()
        logger.removeHandler(handler)

    own = [record.getMessage() for record in caplog.records if record.name == "fila.telemetry.collector"]
    endpoint = f"http://127.0.0.1:{collector.port}"
    assert own == [
        f"telemetry cannot be sent to {endpoint}: the broker works on without it",
        f"telemetry is sent to {endpoint} again",
    ]


def test_without_telemetry_nothing_is_asked_for():
    """The host skips all figures when `enabled` is false."""
    silent: Telemetry = NoTelemetry()

    assert silent.enabled is False
    silent.step(1, 1)
    silent.shutdown()


@pytest.fixture
def unused_port():
    """Return a port on which nobody listens."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def scripted_load(settings):
    """Enqueue 10, ack 4, nack 1, lose 2, release 1 and purge the rest of a queue."""
    async with assembly.running(settings) as broker, AsyncClient(broker.address) as client:
        await client.create_queue("orders")
        await client.enqueue_batch("orders", [NewMessage(b"x")] * 10)
        leased = await client.lease("orders", 5)
        for message in leased[:4]:
            await client.ack("orders", message.id)
        await client.nack("orders", leased[4].id, "not now")
        channel = grpc.aio.insecure_channel(broker.address)
        stream = service_pb2_grpc.FilaServiceStub(channel).Subscribe()
        await stream.write(
            service_pb2.SubscribeRequest(queue="orders", credit_messages=2, credit_bytes=1_000)
        )
        while not (await stream.read()).HasField("delivery"):
            pass
        stream.cancel()
        await channel.close()
        while (await client.stats("orders")).in_flight:  # noqa: ASYNC110 - the broker tells nobody of a lost stream
            await asyncio.sleep(0)
        await client.purge_queue("orders")


def test_a_scripted_load_is_counted_by_a_real_broker(collector, tmp_path):
    """Every message of a load is in the counters, and each kind of work has a span with its queue."""
    settings = Settings(
        server=ServerSettings(listen_addr="127.0.0.1:0"),
        storage=StorageSettings(data_dir=tmp_path / "data"),
        telemetry=TelemetrySettings(otlp_endpoint=f"http://127.0.0.1:{collector.port}"),
    )

    asyncio.run(scripted_load(settings))

    counts = {
        name: collector.count(f"fila.messages.{name}", queue="orders")
        for name in ("enqueued", "delivered", "acked", "nacked", "lost", "purged")
    }
    assert counts == {"enqueued": 10, "delivered": 7, "acked": 4, "nacked": 1, "lost": 2, "purged": 6}
    names = {span.name for span in collector.spans}
    assert {"fila.enqueue", "fila.deliver", "fila.ack", "fila.nack", "fila.lost", "fila.commit"} <= names
    steps = collector.metrics["fila.scheduler.step.duration"].histogram.data_points[0].count
    assert steps >= len(collector.spans) // 2
