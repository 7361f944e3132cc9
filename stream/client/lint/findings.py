"""What was found in one file: all faults are counted, and as many are kept as anybody reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Final

from spu_assigner.stream.client.lint.json_positions import Path, Places
from spu_assigner.stream.client.lint.rules import LintRule, rules
from spu_assigner.stream.common.printable import printable

FINDINGS_MAX: Final = 10_000  # of one file that are kept; the others are counted


@dataclass(frozen=True, slots=True, kw_only=True)
class LintFinding:
    """One fault, where it is."""

    file: str
    line: int
    column: int | None  # None: the line as a whole
    rule: LintRule
    field: str  # as in `replicas[3].id`; empty: the line as a whole
    message: str  # what was found and what was expected
    cluster_id: str | None

    def line_of_text(self) -> str:
        """For people, as compilers write it."""
        place = f"{self.file}:{self.line}:" + ("" if self.column is None else f"{self.column}:")
        field = f" {self.field}:" if self.field else ""
        return printable(f"{place} {self.rule.code}{field} {self.message}")

    def as_json(self) -> dict[str, object]:
        """For programs."""
        return {
            "type": "fault",
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "code": self.rule.code,
            "name": self.rule.name,
            "severity": "error" if self.rule.is_error else "warning",
            "cluster_id": self.cluster_id,
            "field": self.field or None,
            "message": self.message,
            "mend": self.rule.fix,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport:
    """The result for one file."""

    file: str
    events: int = 0
    lists: int = 0
    findings: Sequence[LintFinding] = ()
    errors: int = 0  # also those that were not kept
    warnings: int = 0
    unchecked: Sequence[str] = ()  # clusters whose beginning is not in the file


class FindingCollector:
    """Collects the findings of one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._kept: list[LintFinding] = []
        self._counts: Counter[tuple[str | None, LintRule]] = Counter()

    @property
    def count(self) -> int:
        return self._counts.total()

    def report(  # the place: a path in `places`, or a position there, or the line as a whole
        self,
        name: str,
        message: str,
        *,
        line: int,
        field: str = "",
        places: Places | None = None,
        path: Path = (),
        position: int | None = None,
        cluster_id: str | None = None,
    ) -> None:
        """Note a finding of the rule with this name. `line` is that where `places` begin."""
        rule = rules()[name]
        self._counts[cluster_id, rule] += 1
        if len(self._kept) >= FINDINGS_MAX:
            return
        column = None if position is None else position + 1
        if places is not None:
            at = places.begins(path) if position is None else position
            lines_down, column = places.line_and_column(at)
            line += lines_down - 1
        self._kept.append(
            LintFinding(
                file=self.file,
                line=line,
                column=column,
                rule=rule,
                field=field,
                message=_beside(field, message),
                cluster_id=cluster_id,
            )
        )

    def result(
        self,
        *,
        events: int = 0,
        lists: int = 0,
        in_part: Set[str] = frozenset(),
        unchecked: Sequence[str] = (),
    ) -> LintReport:
        """What holds in the end: of clusters in part, what does not depend on their beginning."""

        def holds(cluster_id: str | None, rule: LintRule) -> bool:
            return not (rule.by_history if cluster_id in in_part else rule.in_part)

        counts = Counter[bool]()
        for (cluster_id, rule), count in self._counts.items():
            if holds(cluster_id, rule):
                counts[rule.is_error] += count
        held = [finding for finding in self._kept if holds(finding.cluster_id, finding.rule)]
        held.sort(key=lambda found: (found.line, found.column or 0, found.rule.code))
        return LintReport(
            file=self.file,
            events=events,
            lists=lists,
            findings=held,
            errors=counts[True],
            warnings=counts[False],
            unchecked=unchecked,
        )


def _beside(field: str, message: str) -> str:
    """A message as it reads beside the name of its field."""
    if not field:
        return message
    for said in (f"{field}: ", f"{field} names "):
        if message.startswith(said):
            return message.removeprefix(f"{field}:").removeprefix(field).lstrip()
    rest = message.removeprefix(f"{field} is ")
    if rest == message or "; " not in rest:
        return message
    if rest.startswith("absent;"):
        return rest
    return f"found {rest}" if "; expected " in rest else message
