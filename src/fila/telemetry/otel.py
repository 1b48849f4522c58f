"""OpenTelemetry behind the telemetry port: metrics and spans over OTLP on gRPC.

The only module that knows OpenTelemetry. It sets no global provider, so that a program with telemetry of its
own can hold a broker, and exports in threads of the SDK: a collector that is slow or away delays nothing but
its own figures, which are dropped when the SDK's buffers are full.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

from fila.telemetry.collector import Collector

SCOPE: Final = "fila"
# Each queue name is a time series for each metric, kept in memory and by whoever stores them.
QUEUES_MAX: Final = 1_000
OTHER_QUEUES: Final = "(other)"
# One attempt; the next interval brings the figures again.
EXPORT_TIMEOUT_S: Final = 5
# A stop must not hang on a collector that is slow, nor wait for one that is away.
SHUTDOWN_TIMEOUT_S: Final = 5.0
SHUTDOWN_AWAY_TIMEOUT_S: Final = 0.5

SECONDS_PER_NS: Final = 1e-9
# From a step of some messages to a disk in trouble.
DURATION_BUCKETS_S: Final = tuple(step * 10.0**exponent for exponent in range(-6, 1) for step in (1, 2.5, 5))
SIZE_BUCKETS: Final = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)

COUNTER_BY_ACTION: Final[Mapping[str, tuple[str, str]]] = {
    "ack": ("fila.messages.acked", "Messages acknowledged"),
    "nack": ("fila.messages.nacked", "Messages refused by a consumer"),
    "expire": ("fila.messages.expired", "Leases that ran out"),
    "release": ("fila.messages.released", "Leases given back without an attempt"),
    "extend": ("fila.messages.extended", "Leases made longer"),
    "lost": ("fila.messages.lost", "Leases of consumers whose stream broke"),
    "purge": ("fila.messages.purged", "Waiting messages removed by an operator"),
}


class _MetricExporter(OTLPMetricExporter):
    """Reports what became of each export; what it logs itself at every attempt, `logs.py` leaves out."""

    def __init__(self, collector: Collector, endpoint: str) -> None:
        super().__init__(endpoint=endpoint, insecure=endpoint.startswith("http://"), timeout=EXPORT_TIMEOUT_S)
        self._collector = collector

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        """Send metrics."""
        result = super().export(metrics_data, timeout_millis, **kwargs)
        self._collector.report("metrics", arrived=result is MetricExportResult.SUCCESS)
        return result


class _SpanExporter(OTLPSpanExporter):
    """The same for spans."""

    def __init__(self, collector: Collector, endpoint: str) -> None:
        super().__init__(endpoint=endpoint, insecure=endpoint.startswith("http://"), timeout=EXPORT_TIMEOUT_S)
        self._collector = collector

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans."""
        result = super().export(spans)
        self._collector.report("spans", arrived=result is SpanExportResult.SUCCESS)
        return result


class OtelTelemetry:
    """Send figures to an OTLP collector; see `Telemetry` for the contract."""

    def __init__(
        self, *, endpoint: str, service_name: str, metrics_interval_ms: int, service_version: str = ""
    ) -> None:
        resource = Resource.create({SERVICE_NAME: service_name, SERVICE_VERSION: service_version})
        self._collector = Collector(endpoint)
        reader = PeriodicExportingMetricReader(
            _MetricExporter(self._collector, endpoint), export_interval_millis=metrics_interval_ms
        )
        self._meters = MeterProvider([reader], resource, shutdown_on_exit=False)
        self._tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._tracers.add_span_processor(BatchSpanProcessor(_SpanExporter(self._collector, endpoint)))
        self._tracer = self._tracers.get_tracer(SCOPE)
        self._labels_by_queue: dict[str, dict[str, str]] = {}
        self._create_instruments()

    def _create_instruments(self) -> None:
        meter = self._meters.get_meter(SCOPE)
        self._enqueued = meter.create_counter("fila.messages.enqueued", "{message}", "Messages taken in")
        self._enqueued_bytes = meter.create_counter("fila.messages.enqueued.size", "By", "Payload taken in")
        self._delivered = meter.create_counter("fila.messages.delivered", "{message}", "Messages leased out")
        self._retried = meter.create_counter(
            "fila.messages.retried", "{message}", "Messages leased out not for the first time"
        )
        self._settled = {
            action: meter.create_counter(name, "{message}", description)
            for action, (name, description) in COUNTER_BY_ACTION.items()
        }

        def duration(name: str, description: str) -> Callable[[float], None]:
            return meter.create_histogram(
                name, "s", description, explicit_bucket_boundaries_advisory=DURATION_BUCKETS_S
            ).record

        def size(name: str, unit: str, description: str) -> Callable[[int], None]:
            return meter.create_histogram(
                name, unit, description, explicit_bucket_boundaries_advisory=SIZE_BUCKETS
            ).record

        self._step_duration = duration("fila.scheduler.step.duration", "Time of one round of the scheduler")
        self._step_commands = size("fila.scheduler.step.commands", "{command}", "Commands in one round")
        self._write_duration = duration("fila.commit.write.duration", "Time to hand a commit to the store")
        self._sync_duration = duration("fila.commit.sync.duration", "Time until a commit was on disk")
        self._commit_messages = size("fila.commit.messages", "{message}", "Messages in one commit")
        self._commit_bytes = meter.create_counter("fila.commit.size", "By", "Payload committed")

    @property
    def enabled(self) -> bool:
        """Say that somebody listens."""
        return True

    def enqueued(self, queue: str, messages: int, payload_bytes: int) -> None:
        """Count a batch that was taken into a queue."""
        labels = self._labels(queue)
        self._enqueued.add(messages, labels)
        self._enqueued_bytes.add(payload_bytes, labels)

    def delivered(self, queue: str, messages: int, attempts_retried: int) -> None:
        """Count a delivery."""
        labels = self._labels(queue)
        self._delivered.add(messages, labels)
        if attempts_retried:
            self._retried.add(attempts_retried, labels)

    def settled(self, queue: str, action: str, messages: int) -> None:
        """Count what became of leased messages."""
        self._settled[action].add(messages, self._labels(queue))

    def step(self, commands: int, duration_ns: int) -> None:
        """Record one round of the scheduler."""
        self._step_duration(duration_ns * SECONDS_PER_NS)
        self._step_commands(commands)

    def commit(self, messages: int, payload_bytes: int, write_ns: int, sync_ns: int) -> None:
        """Record one group commit."""
        self._write_duration(write_ns * SECONDS_PER_NS)
        if sync_ns:
            self._sync_duration(sync_ns * SECONDS_PER_NS)
        self._commit_messages(messages)
        self._commit_bytes.add(payload_bytes)

    def span(self, name: str, start_ns: int, end_ns: int, attributes: Mapping[str, str | int]) -> None:
        """Hand over a finished piece of work."""
        self._tracer.start_span(name, start_time=start_ns, attributes=attributes).end(end_ns)

    def shutdown(self) -> None:
        """Send what is still held, for at most `SHUTDOWN_TIMEOUT_S`, and stop; sooner where nobody would take it."""
        began = time.monotonic()
        # Daemons: the SDK has no time limit of its own for spans, and the process must be able to end.
        flushes = [
            threading.Thread(target=provider.shutdown, name="fila-telemetry-stop", daemon=True)
            for provider in (self._tracers, self._meters)
        ]
        for flush in flushes:
            flush.start()
        reachable = self._collector.is_reachable(SHUTDOWN_AWAY_TIMEOUT_S)
        if not reachable:
            self._collector.report("metrics", arrived=False)
        end = began + (SHUTDOWN_TIMEOUT_S if reachable else SHUTDOWN_AWAY_TIMEOUT_S)
        for flush in flushes:
            flush.join(max(0.0, end - time.monotonic()))

    def _labels(self, queue: str) -> dict[str, str]:
        labels = self._labels_by_queue.get(queue)
        if labels is None:
            if len(self._labels_by_queue) >= QUEUES_MAX:
                queue = OTHER_QUEUES
            labels = self._labels_by_queue.setdefault(queue, {"queue": queue})
        return labels
