"""What the job counts of itself, between those who count and those who look.

The sink tells what a batch came to, once its transaction is committed; the watcher
(`metrics/watcher.py`) tells what Spark says of time and state and how far the input goes. Whoever
looks takes a `Snapshot`.

Rules:
- A batch counts once, when this process has committed it. One that was sent before this process
  began is skipped by the sink, and is counted as skipped and nowhere else.
- Counts begin at 0 with the process, as Prometheus expects; figures of clusters are those after
  the cluster's last batch in this process, so a cluster that no event has touched yet has none.
- Nothing here waits for Kafka or Spark, so that looking never holds up a batch.
"""

from __future__ import annotations

import heapq
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from spu_assigner.core.state.figures import Figures
from spu_assigner.schemas.messages.wire import PartitionPosition
from spu_assigner.stream.shard.tally import Answered, Tally

CLUSTERS_SHOWN: Final = 20  # each has nine series; what is beyond comes as one
OTHERS: Final = "(others)"  # no legal cluster id
NAMES_IN_A_DESCRIPTION: Final = 10
# Seconds: an empty machine answers one request in 0.1, a full batch takes seconds.
BUCKETS: Final = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)

Place = tuple[str, int]  # an input topic, with its prefix, and a partition of it


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """What the sink tells of a batch that is committed."""

    batch: int
    messages: int
    is_replay: bool  # it had been sent before this process began
    events: Mapping[str, int]  # taken from each input topic
    tallies: Mapping[int, Tally]  # by shard
    positions: Mapping[Place, int]  # the next offset to be read
    committed_at: float  # seconds since the epoch
    parts: Mapping[str, float]  # seconds that the sink took, by what for


@dataclass(slots=True)
class Durations:
    """How long batches took, as Prometheus keeps it."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    sum: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds

    def copy(self) -> Durations:
        return Durations(list(self.counts), self.sum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All counts at one moment."""

    answers: Mapping[Answered, int]
    dead_letters: Mapping[str, int]
    events: Mapping[str, int]
    repeated: int
    messages: int
    batches: int
    replays: int
    clusters: Mapping[str, Figures]  # the largest, and the others together
    clusters_measured: int
    clusters_unmeasured: int
    marker_batch: int | None
    marker_age: float | None  # seconds
    lag: Mapping[Place, int]
    durations: Durations
    parts: Mapping[str, float]
    state_rows: int | None
    state_memory: int | None  # bytes


class Metrics:
    """Counts of one job; to be told and looked at by any thread."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: Counter[Answered] = Counter()
        self._dead_letters: Counter[str] = Counter()
        self._events: Counter[str] = Counter()
        self._repeated = self._messages = self._batches = self._replays = 0
        self._clusters: dict[str, Figures] = {}
        self._total = Figures()  # of all these
        self._latest: list[str] = []  # the clusters that the last batch touched
        self._cluster_counts: dict[int, int] = {}  # by shard
        self._marker: tuple[int, float] | None = None
        self._positions: dict[Place, int] = {}
        self._ends: dict[Place, tuple[int, int]] = {}  # the first offset, and the end
        self._durations = Durations()
        self._parts: Counter[str] = Counter()
        self._state: tuple[int, int] | None = None

    def begin(self, *, batch: int, at: float, positions: Mapping[Place, int]) -> None:
        """The last marker, as it was found at the start."""
        with self._lock:
            self._marker = (batch, at)
            self._move(positions)

    def report(self, report: BatchReport) -> None:
        """A batch is committed, or was before."""
        with self._lock:
            self._take_clusters(report.tallies)
            self._move(report.positions)
            if report.is_replay:
                self._replays += 1
                return
            self._marker = (report.batch, report.committed_at)
            self._batches += 1
            self._messages += report.messages
            self._events.update(report.events)
            self._add_parts(report.parts)
            for tally in report.tallies.values():
                self._answers.update(tally.answers)
                self._dead_letters.update(tally.dead_letters)
                self._repeated += tally.repeated

    def progress(self, progress: Mapping[str, Any]) -> None:
        """What Spark says of a batch: `StreamingQueryProgress` as JSON."""
        with self._lock:
            durations = progress.get("durationMs", {})
            whole = durations.get("triggerExecution")
            if whole is not None:
                self._durations.add(whole / 1000)
            self._add_parts(
                {
                    _snake(name): milliseconds / 1000
                    for name, milliseconds in durations.items()
                    if name != "triggerExecution"
                }
            )
            operators = progress.get("stateOperators", ())
            if operators:
                self._state = (
                    sum(each["numRowsTotal"] for each in operators),
                    sum(each["memoryUsedBytes"] for each in operators),
                )
            for source in progress.get("sources", ()):
                self._move(_offsets(source.get("endOffset")))

    def ends(self, ends: Mapping[Place, tuple[int, int]] | None) -> None:
        """The first offset and the end of each input partition; None: they are not known."""
        with self._lock:
            self._ends = dict(ends or {})

    def snapshot(self) -> Snapshot:
        """Everything as it is now."""
        with self._lock:
            known, clusters, total = len(self._clusters), dict(self._clusters), self._total
            marker = self._marker
            found = Snapshot(
                answers=dict(self._answers),
                dead_letters=dict(self._dead_letters),
                events=dict(self._events),
                repeated=self._repeated,
                messages=self._messages,
                batches=self._batches,
                replays=self._replays,
                clusters={},
                clusters_measured=known,
                clusters_unmeasured=max(0, sum(self._cluster_counts.values()) - known),
                marker_batch=None if marker is None else marker[0],
                marker_age=None if marker is None else max(0.0, self._clock() - marker[1]),
                lag={
                    place: max(0, end - self._positions.get(place, first))
                    for place, (first, end) in sorted(self._ends.items())
                },
                durations=self._durations.copy(),
                parts=dict(self._parts),
                state_rows=None if self._state is None else self._state[0],
                state_memory=None if self._state is None else self._state[1],
            )
        return replace(
            found, clusters=largest_clusters(clusters, total)
        )  # Of many it takes a while.

    def description(self, query: str, batch: int) -> str:
        """What Spark's UI says of a batch that begins, in lines.

        Which clusters it has is not known yet, so it tells those of the batch before, and what
        this process has answered so far.
        """
        with self._lock:
            names = self._latest[:NAMES_IN_A_DESCRIPTION]
            more = len(self._latest) - len(names)
            told = Counter[str]()
            for (_, status, _), count in self._answers.items():
                told[status] += count
            told["dead letters"] = self._dead_letters.total()
        clusters = ", ".join(names) or "none yet"
        if more > 0:
            clusters += f" and {more} more"
        counts = ", ".join(f"{count} {name}" for name, count in sorted(told.items()) if count)
        lines = (
            query,
            f"batch = {batch}",
            f"clusters of the batch before = {clusters}",
            f"answered before = {counts or 'nothing'}",
        )
        return ", <br/>".join(lines)  # In places the UI leaves marks out.

    def _take_clusters(self, tallies: Mapping[int, Tally]) -> None:
        nothing = Figures()
        for shard, tally in tallies.items():
            for name, figures in tally.clusters.items():
                self._total += figures - self._clusters.get(name, nothing)
                self._clusters[name] = figures
            self._cluster_counts[shard] = tally.cluster_count
        self._latest = sorted(name for tally in tallies.values() for name in tally.clusters)

    def _move(self, positions: Mapping[Place, int]) -> None:
        for place, position in positions.items():
            self._positions[place] = max(position, self._positions.get(place, 0))

    def _add_parts(self, parts: Mapping[str, float]) -> None:
        for name, seconds in parts.items():
            self._parts[name] += seconds  # type: ignore[assignment]  # a Counter of floats


def by_place(
    positions: Mapping[str, Sequence[PartitionPosition]],
) -> dict[Place, int]:
    """How far the input has been read, as a marker tells it, by topic and partition."""
    return {
        (topic, each.partition): each.next for topic, parts in positions.items() for each in parts
    }


def largest_clusters(
    clusters: Mapping[str, Figures], total: Figures, limit: int = CLUSTERS_SHOWN
) -> dict[str, Figures]:
    """The largest clusters by name, and all others together under a name that is no cluster's.

    Args:
        clusters: all of them.
        total: their sum.
        limit: so many have a name.
    """
    largest = _largest(clusters, limit)
    found = {name: clusters[name] for name in sorted(largest)}
    if len(clusters) > len(largest):
        for figures in found.values():
            total -= figures
        found[OTHERS] = total
    return found


def _largest(clusters: Mapping[str, Figures], limit: int) -> set[str]:
    """By replicas, then by the room they have, then by name."""
    return set(
        heapq.nsmallest(
            limit,
            clusters,
            key=lambda name: (-clusters[name].replicas, -clusters[name].capacity, name),
        )
    )


def _snake(name: str) -> str:
    """Spark's addBatch is add_batch here."""
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in name)


def _offsets(told: object) -> dict[Place, int]:
    """The offsets of a Kafka source, as its progress has them."""
    if not isinstance(told, dict):
        return {}
    return {
        (topic, int(partition)): offset
        for topic, parts in told.items()
        for partition, offset in parts.items()
    }
