"""Checks a file of events: each line is read as `simulate` reads it, and decided by the core.

A cluster in which no SPU joins is taken to exist already. Its SPUs and topics are not known, and
nothing that depends on them is reported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from typing import BinaryIO, Final

import click
from spu_assigner.core.base.events import Policy
from spu_assigner.schemas.errors import LineError
from spu_assigner.schemas.json_lines.json_object import lenient_members
from spu_assigner.schemas.json_lines.lines import event_of_members
from spu_assigner.stream.client.check.cluster_check import CheckFault, ClusterCheck
from spu_assigner.stream.client.check.codes import ADVICE, WARNINGS
from spu_assigner.stream.common.json_line_reading import chunks_of_lines, event_of_line
from spu_assigner.stream.common.printable import counted, listed, printable

FAULTS_MAX: Final = 10_000  # of a file, of which no more is read then


class FileCheck:
    """Takes a file line by line, and keeps its faults."""

    def __init__(self, default_policy: Policy) -> None:
        self.events = 0
        self._default_policy = default_policy
        self._clusters: dict[str, ClusterCheck] = {}
        self._faults: list[CheckFault] = []

    @property
    def is_full(self) -> bool:
        return len(self._faults) >= FAULTS_MAX

    @property
    def running(self) -> list[str]:
        """The clusters whose beginning is not in the file."""
        return [name for name, cluster in self._clusters.items() if not cluster.has_joins]

    def take(self, number: int, raw: bytes) -> None:
        """Check a line, numbered from 1, without its newline."""
        try:
            event = event_of_line(raw)
        except LineError as error:
            self._faults += [
                CheckFault(number, fault.fault.name, fault.message, fault.field)
                for fault in faults_of_line(raw, error)
            ]
            return
        if event is None:
            return
        self.events += 1
        if (cluster := self._clusters.get(event.cluster_id)) is None:
            cluster = ClusterCheck(event.cluster_id, self._default_policy)
            self._clusters[event.cluster_id] = cluster
        self._faults += cluster.take(number, event)

    def faults(self) -> list[CheckFault]:
        """All of them, by line, without those that depend on what a file cannot know."""
        waiting = chain.from_iterable(each.still_waiting() for each in self._clusters.values())
        running = set(self.running)
        return sorted(
            (
                fault
                for fault in (*self._faults, *waiting)
                if not (fault.is_by_history and fault.cluster_id in running)
            ),
            key=lambda fault: fault.line,
        )


def check_lines(source: BinaryIO, name: str, default_policy: Policy, *, is_json: bool) -> int:
    """Print the faults of a file of events and their number; returns the exit status."""
    check = FileCheck(default_policy)
    lines = chain.from_iterable(chunks_of_lines(source))
    number = 0
    for number, raw in enumerate(lines, start=1):
        check.take(number, raw)
        if check.is_full:
            break
    faults = check.faults()
    for fault in faults:
        click.echo(json.dumps(_as_json(fault)) if is_json else _as_text(fault, name))
    warnings = sum(fault.code in WARNINGS for fault in faults)
    errors = len(faults) - warnings
    if is_json:
        counts = {"lines": number, "events": check.events, "errors": errors, "warnings": warnings}
        click.echo(json.dumps({"type": "summary", **counts, "unchecked": check.running}))
    else:
        for said in _summary(check, number, errors, warnings):
            click.echo(printable(said))
    return 1 if errors else 0


def _as_text(fault: CheckFault, file: str) -> str:
    """For people, as compilers write it."""
    is_named = not fault.field or fault.message.startswith(fault.field)
    field = "" if is_named else f"{fault.field}: "
    said = printable(f"{file}:{fault.line}: {fault.code} {field}{fault.message}")
    fix = ADVICE[fault.code].fix
    return said if fix in fault.message else f"{said}\n  fix: {fix}"


def _as_json(fault: CheckFault) -> dict[str, object]:
    """For programs."""
    return {
        "type": "fault",
        "line": fault.line,
        "severity": "warning" if fault.code in WARNINGS else "error",
        "code": fault.code,
        "cluster_id": fault.cluster_id,
        "field": fault.field or None,
        "message": fault.message,
        "fix": ADVICE[fault.code].fix,
    }


def _summary(check: FileCheck, lines: int, errors: int, warnings: int) -> Iterator[str]:
    if check.is_full:
        yield f"note: stopped after line {lines}: too many faults"
    if running := check.running:
        yield (
            f"note: no SPU joins {listed(running)}: what depends on SPUs and earlier topics there "
            "is not checked"
        )
    found = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
    yield f"{found if errors or warnings else 'nothing found'}: {counted(check.events, 'event')}"


def faults_of_line(raw: bytes, first: LineError) -> list[LineError]:
    """All that is wrong with a line that was refused for its first fault, by the reader's rules."""
    faults: list[LineError] = []
    try:
        members = lenient_members(raw, faults.append)
    except LineError:
        return [first]
    event_of_members(members, len(raw), faults.append)
    return faults or [first]
