"""The counts in the names and the format that Prometheus scrapes.

Every name begins with `spu_assigner_`. Labels have few values: words of the contract, codes, input
partitions, Spark's names of a batch's parts, and the largest clusters (`metrics.CLUSTERS_SHOWN`).
The client library escapes what is foreign.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from spu_assigner.core.state.figures import Figures
from spu_assigner.stream.common.release import RELEASE
from spu_assigner.stream.metrics.counters import BUCKETS, Metrics, Snapshot
from spu_assigner.stream.metrics.health import JobHealth

PREFIX: Final = "spu_assigner_"

# Of each cluster that has a name here: what is told of it.
_CLUSTER: Final[tuple[tuple[str, str, Callable[[Figures], float]], ...]] = (
    ("ring_size", "SPUs that may take new replicas", lambda figures: figures.ring),
    ("saturated_spus", "online SPUs without a free slot", lambda figures: figures.saturated),
    ("offline_spus", "known SPUs that are not online", lambda figures: figures.offline),
    ("capacity", "replica slots of the online SPUs", lambda figures: figures.capacity),
    ("capacity_share", "share of these that is used, 0 to 1", lambda figures: figures.share),
    ("replicas", "replicas on all SPUs", lambda figures: figures.replicas),
    ("assigned_partitions", "partitions with replicas", lambda figures: figures.partitions),
    ("topics", "topics that have a map", lambda figures: figures.topics),
    ("waiting", "creates and repairs that wait for room", lambda figures: figures.waiting),
)


class JobCollector(Collector):
    """Makes the families anew at each scrape."""

    def __init__(self, metrics: Metrics, health: JobHealth, *, query: str) -> None:
        self._metrics = metrics
        self._health = health
        self._query = query

    def collect(self) -> Iterator[Metric]:
        snapshot = self._metrics.snapshot()
        info = InfoMetricFamily(PREFIX + "build", "the release, and the query it runs")
        info.add_metric([], {"release": RELEASE, "query": self._query})
        yield info
        for name, what, is_so in (
            ("live", "1 while the query shows signs of life", self._health.live().ok),
            ("ready", "1 while events are answered", self._health.ready().ok),
        ):
            yield GaugeMetricFamily(PREFIX + name, what, value=float(is_so))
        yield from _counters(snapshot)
        yield from _times(snapshot)
        yield from _clusters(snapshot)
        yield from _progress(snapshot)


def registry_of(metrics: Metrics, health: JobHealth, *, query: str) -> CollectorRegistry:
    """The families of a job, and those of its driver's process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(JobCollector(metrics, health, query=query))
    ProcessCollector(registry=registry)
    return registry


def _counters(snapshot: Snapshot) -> Iterator[Metric]:
    answers = CounterMetricFamily(
        PREFIX + "answers",
        "messages of topic-status in committed batches",
        labels=["request", "status", "code"],
    )
    for answered, count in sorted(snapshot.answers.items()):
        answers.add_metric(answered, count)
    yield answers
    letters = CounterMetricFamily(
        PREFIX + "dead_letters", "messages that were no event", labels=["code"]
    )
    for code, count in sorted(snapshot.dead_letters.items()):
        letters.add_metric([code], count)
    yield letters
    events = CounterMetricFamily(
        PREFIX + "events", "messages taken from the input", labels=["topic"]
    )
    for topic, count in sorted(snapshot.events.items()):
        events.add_metric([topic], count)
    yield events
    for name, what, value in (
        ("repeated_events", "events that came again and changed nothing", snapshot.repeated),
        ("messages_sent", "messages of committed batches, without markers", snapshot.messages),
        ("batches", "batches that this process has committed", snapshot.batches),
        ("replays_skipped", "batches that were sent before and not again", snapshot.replays),
    ):
        yield CounterMetricFamily(PREFIX + name, what, value=value)


def _times(snapshot: Snapshot) -> Iterator[Metric]:
    whole = HistogramMetricFamily(PREFIX + "batch_seconds", "how long batches took")
    bounds = [*map(str, BUCKETS), "+Inf"]
    counts = accumulate(snapshot.durations.counts)
    whole.add_metric([], list(zip(bounds, map(float, counts), strict=True)), snapshot.durations.sum)
    yield whole
    parts = CounterMetricFamily(
        PREFIX + "batch_part_seconds",
        "of these, by what for: Spark's own parts, and collect and send, of which add_batch is",
        labels=["part"],
    )
    for part, seconds in sorted(snapshot.parts.items()):
        parts.add_metric([part], seconds)
    yield parts


def _clusters(snapshot: Snapshot) -> Iterator[Metric]:
    for name, what, told in _CLUSTER:
        family = GaugeMetricFamily(f"{PREFIX}cluster_{name}", what, labels=["cluster"])
        for cluster, figures in snapshot.clusters.items():
            family.add_metric([cluster], told(figures))
        yield family
    clusters = GaugeMetricFamily(
        PREFIX + "clusters",
        "clusters; measured are those that had an event in this process",
        labels=["state"],
    )
    clusters.add_metric(["measured"], snapshot.clusters_measured)
    clusters.add_metric(["unmeasured"], snapshot.clusters_unmeasured)
    yield clusters


def _progress(snapshot: Snapshot) -> Iterator[Metric]:
    lag = GaugeMetricFamily(
        PREFIX + "lag_messages",
        "offsets of the input that no committed batch has read",
        labels=["topic", "partition"],
    )
    for (topic, partition), count in snapshot.lag.items():
        lag.add_metric([topic, str(partition)], count)
    yield lag
    for name, what, value in (
        ("state_rows", "entries of Spark's state", snapshot.state_rows),
        ("state_memory_bytes", "memory of Spark's state", snapshot.state_memory),
        ("marker_batch", "number of the last committed batch", snapshot.marker_batch),
        ("marker_age_seconds", "since the last committed batch", snapshot.marker_age),
    ):
        if value is not None:
            yield GaugeMetricFamily(PREFIX + name, what, value=value)
