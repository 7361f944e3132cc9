"""The faults of one file: all are counted, and as many are kept as anyone reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from typing import Final, NamedTuple

from spu_assigner.stream.client.check.codes import ADVICE, WARNINGS
from spu_assigner.stream.common.printable import printable

KEPT_MAX: Final = 10_000


class CheckFault(NamedTuple):
    """One fault of a line."""

    line: int
    code: str
    message: str
    """What was found, and what was expected."""
    field: str
    """As in `replicas[3].id`; empty: the line as a whole."""
    cluster_id: str | None
    is_by_history: bool

    def as_text(self, file: str) -> str:
        """For people, as compilers write it."""
        field = "" if not self.field or self.message.startswith(self.field) else f"{self.field}: "
        said = printable(f"{file}:{self.line}: {self.code} {field}{self.message}")
        fix = ADVICE[self.code].fix
        return said if fix in self.message else f"{said}\n  fix: {fix}"

    def as_json(self) -> dict[str, object]:
        """For programs."""
        return {
            "type": "fault",
            "line": self.line,
            "severity": "warning" if self.code in WARNINGS else "error",
            "code": self.code,
            "cluster_id": self.cluster_id,
            "field": self.field or None,
            "message": self.message,
            "fix": ADVICE[self.code].fix,
        }


class CheckFaults:
    """Collects the faults of a file."""

    def __init__(self) -> None:
        self._kept: list[CheckFault] = []
        self._counts: Counter[tuple[bool, str | None, bool]] = Counter()

    def report(
        self,
        line: int,
        code: str,
        message: str,
        *,
        field: str = "",
        cluster_id: str | None = None,
        is_by_history: bool = False,
    ) -> None:
        """Note a fault, which may depend on what was there before the file."""
        is_by_history |= ADVICE[code].is_by_history
        self._counts[code in WARNINGS, cluster_id, is_by_history] += 1
        if len(self._kept) < KEPT_MAX:
            self._kept.append(CheckFault(line, code, message, field, cluster_id, is_by_history))

    def result(self, running: Set[str]) -> tuple[list[CheckFault], int, int]:
        """Those kept, by line, and the number of all errors and warnings.

        Args:
            running: clusters whose beginning is not in the file: what depends on it is left out.
        """
        sums = Counter[bool]()
        for (is_warning, cluster_id, is_by_history), count in self._counts.items():
            sums[is_warning] += 0 if is_by_history and cluster_id in running else count
        kept = [
            each for each in self._kept if not (each.is_by_history and each.cluster_id in running)
        ]
        return sorted(kept, key=lambda fault: fault.line), sums[False], sums[True]
