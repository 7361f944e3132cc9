"""Lints a file of manual replica lists: read as `produce --replica-assignment` reads it, and judged
by the core's rules for lists.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from spu_assigner.core.base.limits import MANUAL_FILE_SIZE_MAX
from spu_assigner.core.policies.manual_lists import entries_of, list_faults
from spu_assigner.schemas.errors import LineFault
from spu_assigner.schemas.json_lines.json_object import lenient_value
from spu_assigner.stream.client.assignment_file import NoAssignmentError, assignment_of
from spu_assigner.stream.lint.event_checks import whole_lists
from spu_assigner.stream.lint.findings import FindingCollector, LintReport
from spu_assigner.stream.lint.json_positions import Path, Places, field_of
from spu_assigner.stream.lint.rules import LINKED_FILE, SPU_NOT_JOINED, of_line, of_refusal

_EVENTS = "a JSON list of events; expected one event a line, as `jq -c '.[]'` writes them"


def lint_lists(file: str, data: bytes, *, is_link: bool, joined: Set[int] | None) -> LintReport:
    """What is wrong with the lists of a file; `joined` are the SPUs there are, if known."""
    found = FindingCollector(file)
    if is_link:
        said = "a symbolic link, which produce --replica-assignment does not follow"
        found.tell(LINKED_FILE, said, line=1)
    lists = 0
    if len(data) > MANUAL_FILE_SIZE_MAX:
        said = f"the file has more than {MANUAL_FILE_SIZE_MAX} bytes"
        found.tell(of_line(LineFault.TOO_LONG), said, line=1)
    else:
        lists = _ListFile(found, data).lint(joined)
    return found.report(lists=lists)


class _ListFile:
    def __init__(self, found: FindingCollector, data: bytes) -> None:
        self.found = found
        self.data = data
        self.places = Places(data.decode("utf-8-sig", "replace"))

    def lint(self, joined: Set[int] | None) -> int:
        """Tell what is wrong; returns how many lists there are."""
        before = self.found.count
        error: NoAssignmentError | None = None
        try:
            value = assignment_of(self.data)
        except NoAssignmentError as refused:
            error = refused
            if refused.fault in (LineFault.NO_JSON, LineFault.TOO_DEEP):
                self._tell_refused(refused)
                return 0
            value = lenient_value(self.places.text)
            for path, slip in self.places.slips():
                self._tell(path, slip.message, slip.fault)
        entries = entries_of(value)
        if isinstance(entries, list) and entries and _is_event(entries[0]):
            self._tell((), f"the file is {_EVENTS}", LineFault.NO_JSON)
            return 0
        prefix = ("partitions",) if isinstance(value, dict) else ()
        for fault in list_faults(value):
            path = (*prefix, *fault.path)
            self.found.tell(
                of_refusal(fault.code),
                fault.message,
                line=1,
                field=field_of(path),
                places=self.places,
                path=path,
            )
        if error is not None and self.found.count == before:
            self._tell_refused(error)
        if joined is not None:
            self._tell_not_joined(value, prefix, joined)
        return len(entries) if isinstance(entries, list) else 0

    def _tell(self, path: Path, message: str, fault: LineFault) -> None:
        self.found.tell(
            of_line(fault), message, line=1, field=field_of(path), places=self.places, path=path
        )

    def _tell_refused(self, error: NoAssignmentError) -> None:
        self.found.tell(
            of_line(error.fault),
            f"the file {error.reason}",
            line=1,
            places=self.places,
            position=error.position,
        )

    def _tell_not_joined(self, value: Any, prefix: Path, joined: Set[int]) -> None:
        for partition, replicas in whole_lists(value):
            for place, spu_id in replicas:
                if spu_id not in joined:
                    path = (*prefix, partition, "replicas", place)
                    self.found.tell(
                        SPU_NOT_JOINED,
                        f"SPU {spu_id} joins in none of the event files",
                        line=1,
                        field=field_of(path),
                        places=self.places,
                        path=path,
                    )


def _is_event(value: object) -> bool:
    return isinstance(value, dict) and "type" in value
