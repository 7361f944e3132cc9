"""What was found in one file, as far as anybody reads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Final

from spu_assigner.stream.lint.json_positions import Path, Places
from spu_assigner.stream.lint.rules import LintFinding, LintRule

FINDINGS_MAX: Final = 10_000  # of one file that are kept; the others are counted


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport:
    """What is told of one file."""

    file: str
    events: int = 0
    lists: int = 0
    findings: Sequence[LintFinding] = ()
    errors: int = 0  # those that were not kept included
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
        """How many there are."""
        return self._counts.total()

    def tell(  # the place: a path in `places`, or a position there, or the line as a whole
        self,
        rule: LintRule,
        message: str,
        *,
        line: int,
        field: str = "",
        places: Places | None = None,
        path: Path = (),
        position: int | None = None,
        cluster_id: str | None = None,
    ) -> None:
        """Note a finding. `line` is that of the beginning of `places`."""
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

    def report(
        self,
        *,
        events: int = 0,
        lists: int = 0,
        in_part: Set[str] = frozenset(),
        unchecked: Sequence[str] = (),
    ) -> LintReport:
        """What holds in the end: of clusters in part what does not depend on their beginning."""

        def holds(cluster_id: str | None, rule: LintRule) -> bool:
            return not (rule.by_history if cluster_id in in_part else rule.in_part)

        errors = warnings = 0
        for (cluster_id, rule), count in self._counts.items():
            if holds(cluster_id, rule):
                errors += count if rule.is_error else 0
                warnings += 0 if rule.is_error else count
        held = [finding for finding in self._kept if holds(finding.cluster_id, finding.rule)]
        held.sort(key=lambda found: (found.line, found.column or 0, found.rule.code))
        return LintReport(
            file=self.file,
            events=events,
            lists=lists,
            findings=held,
            errors=errors,
            warnings=warnings,
            unchecked=unchecked,
        )


def _beside(field: str, message: str) -> str:
    """A message as it reads beside the name of its field."""
    told = message.removeprefix(f"{field} is ")
    if not field or told == message or "; " not in told:
        return message
    if told.startswith("absent;"):
        return told
    return f"found {told}" if "; expected " in told else message
