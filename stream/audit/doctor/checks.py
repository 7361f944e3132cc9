"""The checks of `spu-assigner doctor`: the job's own, and those that only a person wants.

They run one after the other, in a thread of their own, until a deadline:
- An error that a check raises is a finding, with the code of the error's class. It stops no other
  check; one that needs what failed is "not checked, because …".
- At the deadline the check that has not ended is a finding, and those after it are not made. The
  thread is a daemon: nothing waits for a silent name server or broker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.audit.doctor.codes import rules
from spu_assigner.stream.audit.doctor.look import DoctorFinding, DoctorLook, NotCheckedError
from spu_assigner.stream.audit.doctor.own_checks import (
    look_at_batches,
    look_at_checkpoint,
    look_at_input,
    look_at_jars,
    look_at_kafka,
    look_at_settings,
)
from spu_assigner.stream.audit.doctor.target_checks import look_at_target
from spu_assigner.stream.common.daemon_threads import DaemonThread
from spu_assigner.stream.common.printable import printable
from spu_assigner.stream.job.start_checks import (
    CHECKPOINT,
    INPUT,
    JAVA,
    KAFKA,
    MARKER,
    START_CHECKS,
    StartCheck,
    make,
)
from spu_assigner.stream.kafka.acls import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorCheck:
    """One check, of the roles that need it."""

    name: str
    look: Callable[[DoctorLook], str]  # what was found; raises what is wrong
    roles: Collection[Role] = (Role.JOB,)
    needs: Sequence[str] = ()


# What a check of the job's is made with here, if more is to be done than the job does.
_OWN: Final[Mapping[str, Callable[[DoctorLook], str]]] = {
    KAFKA.name: look_at_kafka,
    CHECKPOINT.name: look_at_checkpoint,
    INPUT.name: look_at_input,
}
_ROLES: Final[Mapping[str, Collection[Role]]] = {
    KAFKA.name: tuple(Role),
    JAVA.name: (Role.JOB, Role.RECOVERER),
}


def _as_the_job(check: StartCheck) -> Callable[[DoctorLook], str]:
    return lambda look: make(check, look.start)


def _of_the_job() -> list[DoctorCheck]:
    """The list that the job goes through at its start."""
    found = []
    for check in START_CHECKS:
        needs = check.needs if check is JAVA else ("settings", *check.needs)
        found.append(
            DoctorCheck(
                name=check.name,
                look=_OWN.get(check.name) or _as_the_job(check),
                roles=_ROLES.get(check.name, (Role.JOB,)),
                needs=needs,
            )
        )
    return found


CHECKS: Final = (
    DoctorCheck(name="settings", look=look_at_settings, roles=tuple(Role)),
    DoctorCheck(name="jars", look=look_at_jars, roles=_ROLES[JAVA.name]),
    *_of_the_job(),
    DoctorCheck(name="batches", look=look_at_batches, needs=(MARKER.name,)),
    DoctorCheck(
        name="target",
        look=look_at_target,
        roles=(Role.APPLIER, Role.MOVER),
        needs=(KAFKA.name,),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What a check has found by its end, or by the deadline."""

    name: str
    found: str = ""  # where that is of interest
    findings: Sequence[DoctorFinding] = ()
    not_checked: str | None = None  # why it has no result

    @property
    def state(self) -> str:
        """The worst that it has found; `ok`, or `unchecked`, if nothing is wrong."""
        if any(finding.rule.severity == "fault" for finding in self.findings):
            return "fault"
        if self.findings:
            return "warning"
        return "ok" if self.not_checked is None else "unchecked"

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "check": self.name,
            "state": self.state,
            "found": printable(self.found) or None,
            "not_checked": None if self.not_checked is None else printable(self.not_checked),
            "findings": [
                {
                    "check": self.name,
                    "code": finding.rule.code,
                    "name": finding.rule.name,
                    "severity": finding.rule.severity,
                    "message": printable(finding.message),
                    "fix": printable(finding.fix),
                }
                for finding in self.findings
            ],
        }


def run_checks(
    look: DoctorLook, seconds_max: float, checks: Sequence[DoctorCheck] = CHECKS
) -> list[CheckReport]:
    """Make all checks that the role needs, in their order, and wait until the deadline."""
    wanted = [check for check in checks if look.role in check.roles]
    reports: list[CheckReport] = []

    def run() -> None:
        failed: dict[str, str] = {}
        for check in wanted:
            reports.append(_made(check, look, failed))

    thread = DaemonThread(run, "doctor")
    thread.start()
    thread.join(seconds_max)
    found = [*reports]
    late = [check.name for check in wanted[len(found) :]]
    for name in late:
        message = f"the check of {late[0]} did not end in time"
        is_first = name == late[0]
        rule = rules()["D002"]
        finding = DoctorFinding(rule=rule, message=message, fix=rule.fix)
        found.append(
            CheckReport(name=name, findings=(finding,) if is_first else (), not_checked=message)
        )
    return found


def _made(check: DoctorCheck, look: DoctorLook, failed: dict[str, str]) -> CheckReport:
    """Make one check, unless one that it needs has failed; then, or if it fails, it is noted."""
    look.findings, found, not_checked = [], "", None
    needed = next((each for each in check.needs if each in failed), None)
    try:
        if needed is not None:
            raise NotCheckedError(failed[needed])
        found = check.look(look)
    except NotCheckedError as reason:
        not_checked = failed[check.name] = str(reason)
    except AssignerError as reason:
        look.report_error(reason)
        failed[check.name] = f"the check of {check.name} failed"
    except Exception as reason:  # One check's defect must not hide what the others find.
        look.report("D003", f"{type(reason).__name__}: {' '.join(str(reason).split())}")
        failed[check.name] = f"the check of {check.name} ended with an unexpected error"
    return CheckReport(
        name=check.name, found=found, findings=look.findings, not_checked=not_checked
    )
