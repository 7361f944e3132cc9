"""Lints a file of manual replica lists: read as `produce --replica-assignment` reads it, and
checked by the core's rules for lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

from spu_assigner.core.base.limits import MANUAL_FILE_SIZE_MAX
from spu_assigner.core.policies.manual_lists import entries_of, list_faults
from spu_assigner.schemas.errors import LineFault
from spu_assigner.schemas.json_lines.json_object import REASSIGNMENT, is_reassignment, lenient_value
from spu_assigner.stream.client.assignment_file import NoAssignmentError, assignment_of
from spu_assigner.stream.client.lint.event_checks import whole_lists
from spu_assigner.stream.client.lint.findings import FindingCollector, LintReport
from spu_assigner.stream.client.lint.json_positions import Path, Places, field_of
from spu_assigner.stream.client.lint.rules import name_of

_EVENTS = "a JSON list of events; expected one event a line, as `jq -c '.[]'` writes them"


def lint_lists(file: str, data: bytes, *, is_link: bool, joined: Set[int] | None) -> LintReport:
    """What is wrong with the lists of a file.

    Args:
        joined: the SPUs of the event files; None: not known.
    """
    found = FindingCollector(file)
    if is_link:
        said = "a symbolic link, which produce --replica-assignment does not follow"
        found.report("linked-file", said, line=1)
    if len(data) > MANUAL_FILE_SIZE_MAX:
        found.report("too-long", f"the file has more than {MANUAL_FILE_SIZE_MAX} bytes", line=1)
        return found.result()
    return found.result(lists=_lint(found, data, joined))


def _lint(found: FindingCollector, data: bytes, joined: Set[int] | None) -> int:
    """Report what is wrong; returns how many lists there are."""
    places = Places(data.decode("utf-8-sig", "replace"))

    def report(name: str, message: str, path: Path = (), position: int | None = None) -> None:
        found.report(
            name,
            message,
            line=1,
            field=field_of(path),
            places=places,
            path=path,
            position=position,
        )

    before = found.count
    refused: NoAssignmentError | None = None
    try:
        value = assignment_of(data)
    except NoAssignmentError as error:
        refused = error
        if error.fault in (LineFault.NO_JSON, LineFault.TOO_DEEP):
            report(name_of(error.fault), f"the file {error.reason}", position=error.position)
            return 0
        value = lenient_value(places.text)
        for path, slip in places.slips():
            report(name_of(slip.fault), slip.message, path)
    entries = entries_of(value)
    if is_reassignment(value):
        report("no-json", f"the file {REASSIGNMENT}")
        for path in _repeated(value):
            said = "an SPU that this list names before; name each SPU once"
            report("manual-duplicate-spu", said, path)
        return len(entries)
    if isinstance(entries, list) and entries and _is_event(entries[0]):
        report("no-json", f"the file is {_EVENTS}")
        return 0
    prefix: Path = ("partitions",) if isinstance(value, dict) else ()
    for fault in list_faults(value):
        report(name_of(fault.code), fault.message, (*prefix, *fault.path))
    if refused is not None and found.count == before:
        report(name_of(refused.fault), f"the file {refused.reason}", position=refused.position)
    if joined is not None:
        for partition, replicas in whole_lists(value):
            for place, spu_id in replicas:
                if spu_id not in joined:
                    said = f"SPU {spu_id} joins in none of the event files"
                    report("spu-not-joined", said, (*prefix, partition, "replicas", place))
    return len(entries) if isinstance(entries, list) else 0


def _repeated(reassignment: Any) -> Iterator[Path]:
    """The way to each SPU that its list names before."""
    for number, replicas in whole_lists(reassignment):
        seen: set[int] = set()
        for place, spu_id in replicas:
            if spu_id in seen:
                yield ("partitions", number, "replicas", place)
            seen.add(spu_id)


def _is_event(entry: Any) -> bool:
    return isinstance(entry, dict) and "type" in entry
