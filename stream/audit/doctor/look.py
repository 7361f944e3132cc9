"""What `spu-assigner doctor` looks at, and what it has found, with the codes of `codes.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.common.printable import printable
from spu_assigner.stream.job.start_checks import StartLook
from spu_assigner.stream.kafka.acls import Role
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.config.setting_spec import SettingsError
from spu_assigner.stream.kafka.errors import TopicsError


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorRule:
    """One kind of finding."""

    code: str
    name: str
    about: str  # what is found
    fix: str  # what to do
    severity: Literal["fault", "warning"] = "fault"
    error: str = ""  # the class of errors that it reports, or the refusal of an UnreachableError


@cache
def rules() -> dict[str, DoctorRule]:
    """All, by code."""
    table = tomllib.loads(Path(__file__).with_name("codes.toml").read_text("utf-8"))
    return {code: DoctorRule(code=code, **fields) for code, fields in table.items()}


def code_of(error: AssignerError) -> str:
    """The code of what an error says: of its refusal, its class, or the nearest base class."""
    by_error = {rule.error: rule.code for rule in rules().values() if rule.error}
    names = (getattr(error, "refusal", None), *(kind.__name__ for kind in type(error).__mro__))
    return next(by_error[name] for name in names if name in by_error)


class NotCheckedError(Exception):
    """A check cannot be made, and nothing is wrong; its text is the reason."""


class DoctorFinding(NamedTuple):
    """One thing that is wrong."""

    check: str
    code: str
    name: str
    severity: Literal["fault", "warning"]
    message: str  # what was found and what was expected
    fix: str  # what to do: the code's, unless it can be said better here


@dataclass(slots=True, kw_only=True)
class CheckReport:
    """What a check has found by its end, or by the deadline."""

    name: str
    found: str = ""  # where that is of interest
    findings: list[DoctorFinding] = field(default_factory=list)
    not_checked: str | None = None  # why it has no result

    def add(self, code: str, message: str, fix: str = "") -> None:
        """Note a finding of the rule `code`, with the rule's own fix unless `fix` is given."""
        rule = rules()[code]
        said = (printable(message), printable(fix or rule.fix))
        self.findings.append(DoctorFinding(self.name, code, rule.name, rule.severity, *said))

    @property
    def state(self) -> str:
        """The worst that it has found; `ok`, or `unchecked`, if nothing is wrong."""
        if self.findings:
            return min(finding.severity for finding in self.findings)  # a fault before a warning
        return "ok" if self.not_checked is None else "unchecked"

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "check": self.name,
            "state": self.state,
            "found": printable(self.found) or None,
            "not_checked": None if self.not_checked is None else printable(self.not_checked),
            "findings": [finding._asdict() for finding in self.findings],
        }


@dataclass(slots=True, kw_only=True)
class DoctorLook:
    """What all checks look at, and the report of the one that runs."""

    start: StartLook
    role: Role = Role.JOB
    is_broker_named: bool = True
    settings_fault: SettingsError | None = None  # then `start` has the settings' defaults
    target_connection: Connection | None = None  # to mapped topics; None: they are with the job's
    batch_next: int = 0  # that the checkpoint was to begin with, before the marker was read
    current: CheckReport = field(default_factory=lambda: CheckReport(name=""))

    def report_error(self, error: AssignerError) -> None:
        """Note an error: its line says what was found, and behind a semicolon what to do."""
        text = " ".join(str(error).split())
        # What is wrong with several topics is said of each of them, behind semicolons too.
        is_list = isinstance(error, TopicsError)
        found, mark, fix = text.rpartition("; ") if is_list else text.partition("; ")
        self.current.add(code_of(error), found if mark else text, fix if mark else "")
