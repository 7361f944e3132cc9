"""Checks a file of events: each line is read as `simulate` reads it, and decided by the core.

A cluster in which no SPU joins is taken to exist already. Its SPUs and topics are not known, and
nothing that depends on them is reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import chain
from typing import BinaryIO, Final

import click
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.limits import MANUAL_FILE_SIZE_MAX
from spu_assigner.core.policies.manual_lists import entries_of
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.errors import LineError, LineFault
from spu_assigner.schemas.json_lines.json_object import (
    REASSIGNMENT,
    is_reassignment,
    lenient_members,
    strict_value,
)
from spu_assigner.schemas.json_lines.lines import event_of_members
from spu_assigner.stream.client.check.event_check import (
    CheckedCluster,
    EventCheck,
    field_of,
    whole_lists,
)
from spu_assigner.stream.client.check.faults import CheckFault, CheckFaults
from spu_assigner.stream.common.json_line_reading import chunks_of_lines, event_of_line
from spu_assigner.stream.common.printable import counted, listed, printable

HEAD_SIZE: Final = 4_096  # bytes of a file that show what is in it

# A list, or the object with a list of partitions: no event begins so.
_DOCUMENT: Final = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:\[|\{\s*(?:\"version\"\s*:\s*\d+\s*,\s*)?\"partitions\"\s*:\s*\[)"
)
_LISTS: Final = "holds replica lists, which `produce topic-create --replica-assignment` takes"
_EVENTS: Final = "is one list of events; write one a line, as `jq -c '.[]'` does"


class FileCheck:
    """Takes a file line by line."""

    def __init__(self, default_policy: Policy) -> None:
        self.events = 0
        self._default_policy = default_policy
        self._clusters: dict[str, CheckedCluster] = {}
        self._faults = CheckFaults()

    def take(self, number: int, raw: bytes) -> None:
        """Check a line, numbered from 1, without its newline."""
        try:
            event = event_of_line(raw)
        except LineError as error:
            for fault in faults_of_line(raw, error):
                self._faults.report(number, fault.fault.name, fault.message, field=fault.field)
            return
        if event is None:
            return
        self.events += 1
        if (cluster := self._clusters.get(event.cluster_id)) is None:
            cluster = CheckedCluster(ClusterState(event.cluster_id))
            self._clusters[event.cluster_id] = cluster
        EventCheck(
            line=number,
            event=event,
            cluster=cluster,
            default_policy=self._default_policy,
            faults=self._faults,
        ).check()

    def take_document(self, data: bytes) -> bool:
        """Say what a file is that is one value of JSON, if it is known; else False.

        An SPU that a replica list names twice is reported, too.
        """
        try:
            value = strict_value(data.decode("utf-8-sig"))
        except (LineError, ValueError, RecursionError):
            return False
        entries = entries_of(value)
        first = entries[0] if isinstance(entries, list) and entries else None
        if not isinstance(first, dict) or not ("type" in first or "replicas" in first):
            return False
        what = _EVENTS if "type" in first else _LISTS
        said = REASSIGNMENT if is_reassignment(value) else what
        self._faults.report(1, LineFault.NO_JSON.name, f"the file {said}; expected lines of events")
        prefix = "partitions" if isinstance(value, dict) else ""
        for partition, replicas in whole_lists(value):
            seen: set[int] = set()
            for place, spu_id in replicas:
                if spu_id in seen:
                    name = field_of(prefix, (partition, "replicas", place))
                    said = f"SPU {spu_id}, which this list names before; expected each once"
                    self._faults.report(1, "MANUAL_DUPLICATE_SPU", said, field=name)
                seen.add(spu_id)
        return True

    def result(self) -> tuple[list[CheckFault], int, int, list[str]]:
        """The faults that are shown, the number of all errors and warnings, running clusters."""
        for cluster in self._clusters.values():
            cluster.report_end(self._faults)
        running = [name for name, cluster in self._clusters.items() if not cluster.joins]
        return *self._faults.result(frozenset(running)), running


def check_lines(source: BinaryIO, name: str, default_policy: Policy, *, is_json: bool) -> int:
    """Print the faults of a file of events and their number; returns the exit status."""
    check = FileCheck(default_policy)
    head = source.read(HEAD_SIZE)
    is_document = False
    if _DOCUMENT.match(head):
        head += source.read(MANUAL_FILE_SIZE_MAX)
        is_document = check.take_document(head)
    if not is_document:
        lines = chain.from_iterable(chunks_of_lines(source, head=head))
        for number, raw in enumerate(lines, start=1):
            check.take(number, raw)
    faults, errors, warnings, running = check.result()
    for fault in faults:
        click.echo(json.dumps(fault.as_json()) if is_json else fault.as_text(name))
    more = errors + warnings - len(faults)
    if is_json:
        counts = {"events": check.events, "errors": errors, "warnings": warnings, "not_shown": more}
        click.echo(json.dumps({"type": "summary", **counts, "unchecked": running}))
    else:
        for said in _summary(check.events, errors, warnings, more, running):
            click.echo(printable(said))
    return 1 if errors else 0


def _summary(
    events: int, errors: int, warnings: int, more: int, running: list[str]
) -> Iterator[str]:
    if more:
        yield f"… {more:,} more"
    if running:
        yield (
            f"note: no SPU joins {listed(running)}: what depends on SPUs and earlier topics there "
            "is not checked"
        )
    found = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
    yield f"{found if errors or warnings else 'nothing found'}: {counted(events, 'event')}"


def faults_of_line(raw: bytes, first: LineError) -> list[LineError]:
    """All that is wrong with a line that was refused for its first fault, by the reader's rules."""
    faults: list[LineError] = []
    try:
        members = lenient_members(raw, faults.append)
    except LineError:
        return [first]
    event_of_members(members, len(raw), faults.append)
    return faults or [first]
