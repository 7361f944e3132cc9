"""Lints a file of events: every line is read as `simulate` reads it and decided by the core.

A cluster is *whole* if its beginning is in the file; else its SPUs and topics are not all known,
and nothing that depends on them is reported. By default, one in which an SPU joins is whole.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import Wait
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.errors import LineError, LineFault
from spu_assigner.schemas.json_lines.json_object import lenient_members
from spu_assigner.schemas.json_lines.kinds import path_of
from spu_assigner.schemas.json_lines.lines import event_of_members
from spu_assigner.stream.client.lint.event_checks import Cluster, EventLint
from spu_assigner.stream.client.lint.findings import FindingCollector, LintReport
from spu_assigner.stream.client.lint.json_positions import Path, Places
from spu_assigner.stream.client.lint.rules import name_of
from spu_assigner.stream.common.json_line_reading import event_of_line

FAULTS_MAX: Final = 1_000  # of one line

_OBJECTS: Final = ("labels", "resources", "demand", "leader_demand")  # whose members have paths


class EventLinter:
    """Takes a file line by line."""

    def __init__(self, file: str, *, default_policy: Policy, whole: bool | None = None) -> None:
        self.events = 0
        self._clusters: dict[str, Cluster] = {}
        self._found = FindingCollector(file)
        self._default_policy = default_policy
        self._whole = whole  # None: a cluster in which an SPU joins

    def take(self, number: int, raw: bytes) -> None:
        """Lint a line, numbered from 1, without its newline."""
        try:
            event = event_of_line(raw)
        except LineError as error:
            for each in faults_of_line(raw, error):
                self._report_line(number, raw, each)
            return
        if event is not None:
            self.events += 1
            cluster = self._clusters.get(event.cluster_id)
            if cluster is None:
                state = ClusterState(event.cluster_id)
                cluster = self._clusters[event.cluster_id] = Cluster(state, self._default_policy)
            EventLint(self._found, cluster, event, line=number, raw=raw).lint()

    def result(self) -> LintReport:
        """What holds, now that all lines are known."""
        for cluster_id, cluster in self._clusters.items():
            self._check_racks(cluster_id, cluster)
            self._check_waiting(cluster_id, cluster)
        if not self.events and not self._found.count:
            self._found.report("no-events", "the file holds no event", line=1)
        in_part = [
            cluster_id
            for cluster_id, cluster in self._clusters.items()
            if not (cluster.begins if self._whole is None else self._whole)
        ]
        return self._found.result(
            events=self.events,
            in_part=frozenset(in_part),
            unchecked=in_part if self._whole is None else (),
        )

    def spu_ids(self) -> set[int]:
        """All SPUs that have joined, in whatever cluster."""
        return {spu_id for cluster in self._clusters.values() for spu_id in cluster.joins}

    def _report_line(self, number: int, raw: bytes, error: LineError) -> None:
        try:
            places = Places(raw.decode())
        except UnicodeDecodeError:  # The fault knows its position.
            places = None
        labels, dot, label = error.field.partition(".")  # There may be dots in a label.
        path: Path = (labels, label) if dot and labels in _OBJECTS else (error.field,)
        if error.field.startswith(("taints[", "constraints.")):
            path = path_of(error.field)
        self._found.report(
            name_of(error.fault),
            error.message,
            line=number,
            field=error.field,
            places=places,
            path=path if error.field else (),
            position=error.position,
        )

    def _check_racks(self, cluster_id: str, cluster: Cluster) -> None:
        """Report the fewer: the SPUs with a rack, or those without."""
        online = [spu for _, spu in sorted(cluster.state.spus.items()) if spu.online]
        racked = [spu for spu in online if spu.rack is not None]
        bare = [spu for spu in online if spu.rack is None]
        has = len(racked) < len(bare)
        fewer, others = (racked, bare) if has else (bare, racked)
        for spu in fewer:
            mine = f"has rack {spu.rack!r}" if has else "has no rack"
            self._found.report(
                "racks-on-some",
                f"SPU {spu.spu_id} {mine}, and {len(others)} of {len(online)} online SPUs have "
                f"{'none' if has else 'one'}; label all or none",
                line=cluster.joins[spu.spu_id],
                field="rack",
                cluster_id=cluster_id,
            )

    def _check_waiting(self, cluster_id: str, cluster: Cluster) -> None:
        for waiting in cluster.state.waiting.values():
            if waiting.kind is Wait.CREATE:
                name, field, said = "still-waiting", "topic", f"topic {waiting.topic!r} still waits"
            else:
                said = f"lists of topic {waiting.topic!r} still lack replicas"
                name, field = "still-short", "spu_id"
            self._found.report(
                name,
                f"{said} when the file ends",
                line=cluster.ids[waiting.cause][0],
                field=field,
                cluster_id=cluster_id,
            )


def faults_of_line(raw: bytes, first: LineError) -> list[LineError]:
    """All that is wrong with a line that was refused for its first fault, by the reader's rules."""
    try:
        members = lenient_members(raw)
    except LineError:
        return [first]
    faults = [error for _, error in islice(Places(raw.decode()).slips(), FAULTS_MAX)]
    reported = {slip.field for slip in faults if slip.fault is LineFault.WRONG_VALUE}

    def note(error: LineError) -> None:
        if len(faults) < FAULTS_MAX and (
            error.fault is not LineFault.WRONG_VALUE or error.field not in reported
        ):
            faults.append(error)

    event_of_members(members, len(raw), note)
    return faults or [first]
