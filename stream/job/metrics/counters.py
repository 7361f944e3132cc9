"""What the job counts of itself, in the names and the format that Prometheus scrapes.

The sink reports each batch once its transaction is committed; the watcher
(`job/metrics/watcher.py`) reports what Spark says of time and state, and where the input ends.

Rules:
- A batch counts once, when this process has committed it. One that was sent before this process
  began is skipped by the sink, and is counted as skipped and nowhere else.
- Counts begin at 0 with the process; figures of clusters are those after the cluster's last batch
  in this process, so a cluster that no event has touched yet has none.
- Nothing here waits for Kafka or Spark, so that a scrape never holds up a batch.
- Labels have few values: words of the contract, codes, input partitions, Spark's names of a batch's
  parts, and the largest clusters.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import prometheus_client as prometheus
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from spu_assigner.schemas.messages.wire import CommitMarker, MovesRun, MovesState
from spu_assigner.stream.common.release import RELEASE
from spu_assigner.stream.job.metrics.health import JobHealth
from spu_assigner.stream.job.shard.tally import Figures, Tally
from spu_assigner.stream.kafka.election import FollowerLook

PREFIX: Final = "spu_assigner_"
# Each has fourteen series, and one for each of up to eight resources; what is beyond comes as one.
CLUSTERS_SHOWN: Final = 20
OTHERS: Final = "(others)"  # no legal cluster id
# Seconds: an empty machine answers one request in 0.1, a full batch takes seconds.
BUCKETS: Final = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)

# Of each cluster that has a name here.
_CLUSTER: Final[tuple[tuple[str, str, Callable[[Figures], float]], ...]] = (
    ("ring_size", "SPUs that may take new replicas", lambda figures: figures.ring),
    ("saturated_spus", "online SPUs without a free slot", lambda figures: figures.saturated),
    ("cordoned_spus", "online SPUs that are cordoned", lambda figures: figures.cordoned),
    ("demoted_spus", "SPUs that lead only where no other can", lambda figures: figures.demoted),
    ("offline_spus", "known SPUs that are not online", lambda figures: figures.offline),
    ("capacity", "replica slots of the online SPUs", lambda figures: figures.capacity),
    ("capacity_share", "share of these that is used, 0 to 1", lambda figures: figures.share),
    ("replicas", "replicas on all SPUs", lambda figures: figures.replicas),
    ("assigned_partitions", "partitions with replicas", lambda figures: figures.partitions),
    ("topics", "topics that have a map", lambda figures: figures.topics),
    ("waiting", "creates and repairs that wait for room", lambda figures: figures.waiting),
    ("lists_on_few_racks", "of fewer racks than the ring has", lambda figures: figures.few_racks),
    ("lists_against_rules", "lists that break a hard rule", lambda figures: figures.broken_rules),
    ("topics_of_one_leader", "that others could lead, too", lambda figures: figures.one_leader),
)

Place = tuple[str, int]  # an input topic, with its prefix, and a partition of it

# Else each counter has a second series, which no query uses.
prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations


class Metrics(Collector):
    """Counts of one job, in a registry of their own; any thread may report and scrape. `moves`
    gives the run that moves partitions, or the last one; None: none is known."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        moves: Callable[[], MovesRun | None] = lambda: None,
    ) -> None:
        self.registry = prometheus.CollectorRegistry(auto_describe=False)
        self.attempts = 0  # to send a batch: each is a sign of life
        self.looks: Mapping[str, FollowerLook] = {}  # the last of the followers of each cluster
        self._answers = self._counter(
            "answers", "messages of topic-status in committed batches", "request", "status", "code"
        )
        self._dead_letters = self._counter("dead_letters", "messages that were no event", "code")
        self._events = self._counter("events", "messages taken from the input", "topic")
        self._repeated = self._counter(
            "repeated_events", "events that came again and changed nothing"
        )
        self._messages = self._counter(
            "messages_sent", "messages of committed batches, without markers"
        )
        self._batches = self._counter("batches", "batches that this process has committed")
        self._replays = self._counter("replays_skipped", "batches that were sent before")
        self._durations = prometheus.Histogram(
            PREFIX + "batch_seconds",
            "how long batches took",
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._parts = self._counter(
            "batch_part_seconds",
            "of these, by what for: Spark's own parts, and collect and send, of which add_batch is",
            "part",
        )
        self.registry.register(self)
        self._clock = clock
        self._moves = moves
        self._lock = threading.Lock()  # for what follows
        self._clusters: dict[str, Figures] = {}
        self._total = Figures()  # of all these
        self._shares: dict[str, Mapping[str, float]] = {}  # by cluster, then by resource
        self._cluster_counts: dict[int, int] = {}  # by shard
        self._marker: tuple[int, float] | None = None
        self._positions: dict[Place, int] = {}
        self._ends: dict[Place, tuple[int, int]] = {}  # the first offset, and the end
        self._state: tuple[int, int] | None = None  # rows, bytes

    def _counter(self, name: str, what: str, *labels: str) -> prometheus.Counter:
        return prometheus.Counter(PREFIX + name, what, labels, registry=self.registry)

    def begin(self, marker: CommitMarker, *, at: float) -> None:
        """The last marker, as it was found at the start, and when it was written."""
        with self._lock:
            self._marker = (marker.batch, at)
            self._move_to(marker)

    def report(
        self,
        marker: CommitMarker,
        tallies: Mapping[int, Tally],
        *,
        is_replay: bool,
        at: float,
        parts: Mapping[str, float],
    ) -> None:
        """A batch is committed, or was before this process began (`is_replay`)."""
        with self._lock:
            for shard, tally in tallies.items():
                for name, figures in tally.clusters.items():
                    self._total += figures - self._clusters.get(name, Figures())
                    self._clusters[name] = figures
                    self._shares[name] = tally.shares.get(name, {})
                    if figures == Figures() and not self._shares[name]:  # It is forgotten.
                        del self._clusters[name], self._shares[name]
                self._cluster_counts[shard] = tally.cluster_count
            self._move_to(marker)
            if not is_replay:
                self._marker = (marker.batch, at)
        if is_replay:
            self._replays.inc()
            return
        self._batches.inc()
        self._messages.inc(marker.count)
        for topic, read in marker.offsets.items():
            self._events.labels(topic).inc(sum(each.count for each in read))
        self._add_parts(parts)
        for tally in tallies.values():
            for answered, count in tally.answers.items():
                self._answers.labels(*answered).inc(count)
            for code, count in tally.dead_letters.items():
                self._dead_letters.labels(code).inc(count)
            self._repeated.inc(tally.repeated)

    def batch_figures(self, tallies: Collection[Tally]) -> tuple[int, ...]:
        """What Spark's UI shows of a batch beside its events: `FIGURES` of `AnswersProvider.java`.
        Clusters are those measured after the batch, the fullest that of the largest used share."""
        answers = [each for tally in tallies for each in tally.answers.items()]
        clusters = [each for tally in tallies for each in tally.clusters.values()]
        fullest = max(clusters, key=attrgetter("share"), default=Figures())
        with self._lock:
            lag = sum(count for _, count in self._lags())
        return (
            len(clusters),
            sum(count for _, count in answers),
            sum(count for (_, status, _), count in answers if status == "rejected"),
            sum(sum(tally.dead_letters.values()) for tally in tallies),
            fullest.ring,
            fullest.saturated,
            lag,
        )

    def progress(self, progress: Mapping[str, Any]) -> None:
        """What Spark says of a batch: `StreamingQueryProgress` as JSON."""
        seconds = {name: ms / 1000 for name, ms in progress.get("durationMs", {}).items()}
        whole = seconds.pop("triggerExecution", None)
        if whole is not None:
            self._durations.observe(whole)
        self._add_parts({_snake(name): part for name, part in seconds.items()})
        operators = progress.get("stateOperators", ())
        with self._lock:
            if operators:
                self._state = (
                    sum(each["numRowsTotal"] for each in operators),
                    sum(each["memoryUsedBytes"] for each in operators),
                )
            for source in progress.get("sources", ()):
                for topic, parts in (source.get("endOffset") or {}).items():
                    self._move({(topic, int(part)): offset for part, offset in parts.items()})

    def ends(self, ends: Mapping[Place, tuple[int, int]]) -> None:
        """The first offset and the end of each input partition; none: they are not known."""
        with self._lock:
            self._ends = dict(ends)

    def collect(self) -> Iterator[Metric]:
        """What is computed at each scrape."""
        with self._lock:
            clusters, total, shares = dict(self._clusters), self._total, dict(self._shares)
            known = sum(self._cluster_counts.values())
            marker, state = self._marker, self._state
            lag = [([topic, str(part)], count) for (topic, part), count in self._lags()]
        shown = _largest(clusters, total)  # Without the lock: of many it takes a while.
        for name, what, figure in _CLUSTER:
            rows = (([cluster], figure(figures)) for cluster, figures in shown.items())
            yield _gauges(f"cluster_{name}", what, ["cluster"], rows)
        yield _gauges(
            "cluster_resource_share",
            "largest share of a resource that is used on an SPU; above 1 where it has too little",
            ["cluster", "resource"],
            (
                ([cluster, resource], share)
                for cluster in shown
                for resource, share in shares.get(cluster, {}).items()
            ),
        )
        ages = (([name], self._clock() - at) for name, (at, _) in self.looks.items())
        ahead = (([name], count) for name, (_, count) in self.looks.items() if count is not None)
        yield _gauges("follow_age_seconds", "since `follow` last looked", ["cluster"], ages)
        what = "partitions that are not in Kafka as mapped, when `follow` last looked"
        yield _gauges("follow_partitions_ahead", what, ["cluster"], ahead)
        yield _gauges(
            "clusters",
            "clusters; measured are those that had an event in this process",
            ["state"],
            [(["measured"], len(clusters)), (["unmeasured"], max(0, known - len(clusters)))],
        )
        what = "offsets of the input that no committed batch has read"
        yield _gauges("lag_messages", what, ["topic", "partition"], lag)
        if state is not None:
            yield _gauge("state_rows", "entries of Spark's state", state[0])
            yield _gauge("state_memory_bytes", "memory of Spark's state", state[1])
        if marker is not None:
            age = max(0.0, self._clock() - marker[1])
            yield _gauge("marker_batch", "number of the last committed batch", marker[0])
            yield _gauge("marker_age_seconds", "since the last committed batch", age)
        if (run := self._moves()) is not None:
            yield from _moves_families(run, now=self._clock())

    def _lags(self) -> list[tuple[Place, int]]:
        return [
            (place, max(0, end - self._positions.get(place, first)))
            for place, (first, end) in sorted(self._ends.items())
        ]

    def _move_to(self, marker: CommitMarker) -> None:
        for topic, parts in marker.positions.items():
            self._move({(topic, each.partition): each.next for each in parts})

    def _move(self, positions: Mapping[Place, int]) -> None:
        for place, position in positions.items():
            self._positions[place] = max(position, self._positions.get(place, 0))

    def _add_parts(self, parts: Mapping[str, float]) -> None:
        for name, seconds in parts.items():
            self._parts.labels(name).inc(seconds)


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, what, value=value)


def _gauges(
    name: str, what: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], float]]
) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, what, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def _moves_families(run: MovesRun, *, now: float) -> Iterator[Metric]:
    for name, what, figures in (
        ("moves", "partitions of the last run that moves some", run.moves_by_state()),
        ("moves_bytes", "bytes that it has, or had, to copy", run.bytes_by_state()),
    ):
        yield _gauges(name, what, ["state"], (([state], count) for state, count in figures.items()))
    is_running = float(run.state is MovesState.RUNNING)
    age = max(0.0, now - run.recorded_at / 1000)
    yield _gauge("moves_running", "1 until that run has ended", is_running)
    yield _gauge("moves_record_age_seconds", "since it recorded how far it is", age)


def add_job(metrics: Metrics, health: JobHealth, *, query: str) -> None:
    """Add to the counts what the process is: release, health, memory and processor time."""
    registry = metrics.registry
    build = prometheus.Info(
        PREFIX + "build", "the release, and the query it runs", registry=registry
    )
    build.info({"release": RELEASE, "query": query})
    live = prometheus.Gauge(
        PREFIX + "live", "1 while the query shows signs of life", registry=registry
    )
    live.set_function(lambda: health.live()["live"])
    ready = prometheus.Gauge(PREFIX + "ready", "1 while events are answered", registry=registry)
    ready.set_function(lambda: health.ready()["ready"])
    prometheus.ProcessCollector(registry=registry)


def _largest(clusters: Mapping[str, Figures], total: Figures) -> dict[str, Figures]:
    """The largest clusters by replicas, then by capacity, then by name, in order of names. All
    others are together under a name that is no cluster's. `total` is the sum of all."""
    largest = heapq.nsmallest(
        CLUSTERS_SHOWN,
        clusters,
        key=lambda name: (-clusters[name].replicas, -clusters[name].capacity, name),
    )
    found = {name: clusters[name] for name in sorted(largest)}
    if len(clusters) > len(found):
        for figures in found.values():
            total -= figures
        found[OTHERS] = total
    return found


def _snake(name: str) -> str:
    """Spark's addBatch is add_batch here."""
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in name)
