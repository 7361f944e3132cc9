"""Lints a file of events: every line is read as `simulate` reads it and decided by the core.

A cluster is *whole* if its beginning is in the file; else its SPUs and topics are not all known,
and nothing is said that depends on them. Unless told otherwise, one in which an SPU joins is.
"""

from __future__ import annotations

from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import Wait
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.errors import LineError
from spu_assigner.stream.common.json_line_reading import event_of_line
from spu_assigner.stream.lint.event_checks import Cluster, EventLint
from spu_assigner.stream.lint.findings import FindingCollector, LintReport
from spu_assigner.stream.lint.line_faults import faults_of_line, path_of, places_of
from spu_assigner.stream.lint.rules import (
    NO_EVENTS,
    SOME_RACKS,
    STILL_SHORT,
    STILL_WAITING,
    of_line,
)


class EventLinter:
    """Takes a file line by line."""

    def __init__(self, file: str, *, default_policy: Policy, whole: bool | None = None) -> None:
        self.clusters: dict[str, Cluster] = {}
        self.events = 0
        self._found = FindingCollector(file)
        self._default_policy = default_policy
        self._whole = whole  # None: a cluster in which an SPU joins

    def take(self, number: int, raw: bytes) -> None:
        """Lint a line, numbered from 1, without its newline."""
        try:
            event = event_of_line(raw)
        except LineError as error:
            for each in faults_of_line(raw, error):
                self._tell_line(number, raw, each)
            return
        if event is not None:
            self.events += 1
            cluster = self.clusters.get(event.cluster_id)
            if cluster is None:
                state = ClusterState(event.cluster_id)
                cluster = self.clusters[event.cluster_id] = Cluster(state, self._default_policy)
            EventLint(self._found, cluster, event, line=number, raw=raw).lint()

    def report(self) -> LintReport:
        """What holds, now that all lines are known."""
        for cluster_id, cluster in self.clusters.items():
            self._tell_end(cluster_id, cluster)
        if not self.events and not self._found.count:
            self._found.tell(NO_EVENTS, "the file holds no event", line=1)
        in_part = [
            cluster_id
            for cluster_id, cluster in self.clusters.items()
            if not (cluster.begins if self._whole is None else self._whole)
        ]
        return self._found.report(
            events=self.events,
            in_part=frozenset(in_part),
            unchecked=in_part if self._whole is None else (),
        )

    def spu_ids(self) -> set[int]:
        """All SPUs that have joined, in whatever cluster."""
        return {spu_id for cluster in self.clusters.values() for spu_id in cluster.joins}

    def _tell_line(self, number: int, raw: bytes, error: LineError) -> None:
        self._found.tell(
            of_line(error.fault),
            error.message,
            line=number,
            field=error.field,
            places=places_of(raw),
            path=path_of(error.field),
            position=error.position,
        )

    def _tell_end(self, cluster_id: str, cluster: Cluster) -> None:
        state, tell = cluster.state, self._found.tell
        online = [spu for _, spu in sorted(state.spus.items()) if spu.online]
        racked = [spu for spu in online if spu.rack is not None]
        bare = [spu for spu in online if spu.rack is None]
        if racked and bare:
            has = len(racked) < len(bare)
            for spu in racked if has else bare:
                mine = f"has rack {spu.rack!r}" if has else "has no rack"
                others = "have none" if has else "have one"
                tell(
                    SOME_RACKS,
                    f"SPU {spu.spu_id} {mine}, and {max(len(racked), len(bare))} of "
                    f"{len(online)} online SPUs {others}; label all or none",
                    line=cluster.joins[spu.spu_id],
                    field="rack",
                    cluster_id=cluster_id,
                )
        for waiting in state.waiting.values():
            if waiting.kind is Wait.CREATE:
                rule, said = STILL_WAITING, f"topic {waiting.topic!r} still waits"
            else:
                rule, said = STILL_SHORT, f"lists of topic {waiting.topic!r} lack replicas still"
            tell(
                rule,
                f"{said} when the file ends",
                line=cluster.ids[waiting.cause][0],
                field="topic" if rule is STILL_WAITING else "spu_id",
                cluster_id=cluster_id,
            )
