"""The checks of `spu-assigner doctor`: the job's own, and those that only a person wants.

They run one after the other, in a daemon thread, until a deadline. An error that a check raises is
a finding, with the code of the error's class; a check that needs what failed is not made. At the
deadline the check that has not ended is a finding, and those after it are not made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.audit.doctor.look import CheckReport, DoctorLook, NotCheckedError
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
from spu_assigner.stream.job.start_checks import (
    CHECKPOINT,
    INPUT,
    JAVA,
    KAFKA,
    MARKER,
    METRICS,
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


def _of_the_job(
    check: StartCheck,
    look: Callable[[DoctorLook], str] | None = None,
    roles: Collection[Role] = (Role.JOB,),
) -> DoctorCheck:
    """A check of the job's start, made as the job makes it, or with more done than that."""
    return DoctorCheck(
        name=check.name,
        look=look or (lambda given: make(check, given.start)),
        roles=roles,
        needs=check.needs if check is JAVA else ("settings", *check.needs),
    )


_HAS_JAVA: Final = (Role.JOB, Role.RECOVERER)
_MOVES: Final = (Role.APPLIER, Role.MOVER)
CHECKS: Final = (
    DoctorCheck(name="settings", look=look_at_settings, roles=tuple(Role)),
    DoctorCheck(name="jars", look=look_at_jars, roles=_HAS_JAVA),
    _of_the_job(JAVA, roles=_HAS_JAVA),
    _of_the_job(METRICS),
    _of_the_job(KAFKA, look_at_kafka, tuple(Role)),
    _of_the_job(CHECKPOINT, look_at_checkpoint),
    _of_the_job(MARKER),
    _of_the_job(INPUT, look_at_input),
    DoctorCheck(name="batches", look=look_at_batches, needs=(MARKER.name,)),
    DoctorCheck(name="target", look=look_at_target, roles=_MOVES, needs=(KAFKA.name,)),
)


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
        found.append(CheckReport(name=name, not_checked=message))
        if name == late[0]:
            found[-1].add("D002", message)
    return found


def _made(check: DoctorCheck, look: DoctorLook, failed: dict[str, str]) -> CheckReport:
    """Make one check, unless one that it needs has failed; then, or if it fails, it is noted."""
    look.current = report = CheckReport(name=check.name)
    try:
        for needed in check.needs:
            if needed in failed:
                raise NotCheckedError(failed[needed])
        report.found = check.look(look)
    except NotCheckedError as reason:
        report.not_checked = failed[check.name] = str(reason)
    except AssignerError as reason:
        look.report_error(reason)
        failed[check.name] = f"the check of {check.name} failed"
    except Exception as reason:  # One check's defect must not hide what the others find.
        look.current.add("D003", f"{type(reason).__name__}: {' '.join(str(reason).split())}")
        failed[check.name] = f"the check of {check.name} ended with an unexpected error"
    return report
