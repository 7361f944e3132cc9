"""What `spu-assigner doctor` looks at, and what it has found."""

from __future__ import annotations

from dataclasses import dataclass, field

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.audit.doctor.codes import DoctorRule, code_of, rules
from spu_assigner.stream.job.start_checks import StartLook
from spu_assigner.stream.kafka.acls import Role
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.config.setting_spec import SettingsError
from spu_assigner.stream.kafka.errors import TopicsError


class NotCheckedError(Exception):
    """A check cannot be made, and nothing is wrong; its text is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFinding:
    """One thing that is wrong."""

    rule: DoctorRule
    message: str  # what was found and what was expected
    fix: str  # what to do about it here


def finding_of(code: str, message: str, fix: str = "") -> DoctorFinding:
    """A finding; what to do is the code's, unless it can be said better here."""
    rule = rules()[code]
    return DoctorFinding(rule=rule, message=message, fix=fix or rule.fix)


@dataclass(slots=True, kw_only=True)
class DoctorLook:
    """What all checks look at, and the findings of the one that runs."""

    start: StartLook
    role: Role = Role.JOB
    is_broker_named: bool = True
    settings_fault: SettingsError | None = None  # then `start` has the settings' defaults
    target_connection: Connection | None = None  # to mapped topics; None: they are with the job's
    batch_next: int = 0  # that the checkpoint was to begin with, before the marker was read
    findings: list[DoctorFinding] = field(default_factory=list)

    def report(self, code: str, message: str, fix: str = "") -> None:
        self.findings.append(finding_of(code, message, fix))

    def report_error(self, error: AssignerError) -> None:
        """Note an error: its line says what was found, and behind a semicolon what to do."""
        text = " ".join(str(error).split())
        # What is wrong with several topics is said of each of them, behind semicolons too.
        is_list = isinstance(error, TopicsError)
        found, mark, fix = text.rpartition("; ") if is_list else text.partition("; ")
        self.report(code_of(error), found if mark else text, fix if mark else "")
