"""Which checks `spu-assigner doctor` makes for a role, and how they run side by side.

Each runs in a thread of its own until a common deadline:
- A check that fails stops no other. One that needs the result of another waits for it, and is "not
  checked, because …" where there is none.
- The deadline of which nobody said anything moves with the load of the machine: all checks need a
  processor, and one that waits for it has found nothing wrong.
- At the deadline, what a check has found by then counts, and the check itself is reported as
  unfinished. Its thread is a daemon: nothing waits for a silent name server or port.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.audit.doctor.codes import DoctorRule, rules
from spu_assigner.stream.common.daemon_threads import DaemonThread
from spu_assigner.stream.common.printable import printable
from spu_assigner.stream.kafka.acls import Role
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.config.setting_spec import SettingsError
from spu_assigner.stream.kafka.config.settings import Settings

SLOWNESS_MAX: Final = 8.0  # however much is waiting: then something else is wrong
_WITH_SPARK: Final = (Role.JOB, Role.RECOVERER)
_JOB: Final = (Role.JOB,)
_WITH_TARGET: Final = (Role.APPLIER, Role.MOVER)

# The checks in the order of the report: the module of the function `check_NAME`, the roles that
# need the check, and the checks whose results the function is given by name.
CHECKS: Final[Mapping[str, tuple[str, Collection[Role], Sequence[str]]]] = {
    "settings": ("machine_checks", tuple(Role), ()),
    "python": ("machine_checks", tuple(Role), ()),
    "packages": ("machine_checks", tuple(Role), ()),
    "java": ("machine_checks", _WITH_SPARK, ()),
    "jars": ("machine_checks", _WITH_SPARK, ()),
    "disk": ("machine_checks", _WITH_SPARK, ("settings",)),
    "ports": ("machine_checks", _JOB, ("settings",)),
    "broker": ("broker_checks", tuple(Role), ("settings",)),
    "rights": ("broker_checks", tuple(Role), ("broker", "settings")),
    "topics": ("topic_checks", tuple(Role), ("broker", "rights")),
    "target": ("target_checks", _WITH_TARGET, ("settings",)),
    "clock": ("broker_checks", _JOB, ("broker",)),
    "checkpoint": ("checkpoint_checks", _JOB, ("settings",)),
    "marker": ("marker_checks", _JOB, ("broker", "rights", "topics", "checkpoint", "settings")),
    "input": ("marker_checks", _JOB, ("broker", "topics", "checkpoint", "settings")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimit:
    """How long all checks together may take."""

    seconds: float
    grows: bool = False  # with the load of the machine, which lets all of them wait
    begun: float = field(default_factory=time.monotonic)

    @property
    def slowness(self) -> float:
        """How many times longer than usual what needs a processor takes now."""
        if not self.grows:
            return 1.0
        waiting = os.getloadavg()[0] / (os.cpu_count() or 1)  # for each processor
        return min(max(1.0, waiting), SLOWNESS_MAX)

    @property
    def left(self) -> float:
        """Seconds until its end."""
        return max(0.0, self.begun + self.seconds * self.slowness - time.monotonic())


class Unchecked(Exception):  # noqa: N818  # no error: the result of a check
    """A check has no result; its text is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTarget:
    """What is checked: settings, role, environment."""

    settings: Settings | SettingsError  # the error: they cannot be used
    is_broker_named: bool
    role: Role
    environ: Mapping[str, str]
    target_connection: Connection | None = None  # to mapped topics; None: they are with the job's


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFinding:
    """One thing that is wrong."""

    rule: DoctorRule
    message: str  # what was found and what was expected
    fix: str  # what to do about it here


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What a check has found by its end, or by the deadline."""

    name: str
    summary: str  # what was found, where that is of interest
    findings: Sequence[DoctorFinding]
    left_out: Sequence[str]  # parts that could not be checked
    unchecked: str | None  # why it has no result

    @property
    def state(self) -> str:
        """The worst that it has found; `ok`, or `unchecked`, if nothing is wrong."""
        if any(finding.rule.severity == "fault" for finding in self.findings):
            return "fault"
        if self.findings:
            return "warning"
        return "ok" if self.unchecked is None else "unchecked"

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "check": self.name,
            "state": self.state,
            "found": printable(self.summary) or None,
            "not_checked": None if self.unchecked is None else printable(self.unchecked),
            "left_out": [printable(part) for part in self.left_out],
            "findings": [
                {
                    "check": self.name,
                    "code": finding.rule.code,
                    "name": finding.rule.name,
                    "severity": finding.rule.severity,
                    "message": printable(finding.message),
                    "mend": printable(finding.fix),
                }
                for finding in self.findings
            ],
        }


class Check:
    """One check in its thread."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        target: CheckTarget,
        limit: TimeLimit,
        needs: Sequence[Check] = (),
    ) -> None:
        self.name = name
        self.target = target
        self.summary = ""
        self.findings: list[DoctorFinding] = []
        self.left_out: list[str] = []
        self.result: Future[Any] = Future()
        self._function = function
        self._limit = limit
        self._needs = needs
        self._waits_for: str | None = None

    @property
    def seconds_left(self) -> float:
        """Until the deadline; always more than none."""
        return max(0.05, self._limit.left)

    @property
    def slowness(self) -> float:
        """By what the limits of single requests are to be multiplied."""
        return self._limit.slowness

    def report(self, code: str, message: str, fix: str | None = None) -> None:
        """Note a finding; what to do is the code's, unless it can be said better here."""
        rule = rules()[code]
        self.findings.append(DoctorFinding(rule=rule, message=message, fix=fix or rule.fix))

    def report_error(self, error: AssignerError, codes: Mapping[type[AssignerError], str]) -> None:
        """Note what the job would refuse to start with, by the error's class."""
        code = next(code for kind, code in codes.items() if isinstance(error, kind))
        self.report(code, str(error).partition("; ")[0].partition(". ")[0])

    def start(self) -> None:
        DaemonThread(self._run, f"check {self.name}").start()

    def finish(self) -> CheckReport:
        """Wait for its end, or for the deadline; returns what was found by then."""
        findings: list[DoctorFinding] = []
        unchecked = None
        try:
            self._await_result()
        except Unchecked as reason:
            unchecked = str(reason)
        except TimeoutError:
            waits_for = self._waits_for
            unchecked = f"{waits_for or self.name} did not end in time"
            if waits_for is None:
                rule = rules()["D002"]
                message = f"the check of {unchecked}"
                findings.append(DoctorFinding(rule=rule, message=message, fix=rule.fix))
        # By now: a check may have begun anew with another list, and after the deadline goes on.
        findings = [*self.findings, *findings]
        return CheckReport(
            name=self.name,
            summary=self.summary,
            findings=findings,
            left_out=[*self.left_out],
            unchecked=unchecked,
        )

    def _await_result(self) -> None:
        """Wait for the result, until the deadline, which may move meanwhile."""
        while True:
            try:
                self.result.result(self._limit.left)
            except TimeoutError:
                if not self._limit.left:
                    raise
            else:
                return

    def _run(self) -> None:
        try:
            self.result.set_result(
                self._function(self, **{each.name: self._needed(each) for each in self._needs})
            )
        except Unchecked as reason:
            self.result.set_exception(reason)
        except ImportError as reason:
            self.report("D116", str(reason))
            self.result.set_exception(Unchecked(f"a package cannot be imported ({reason})"))
        except Exception as reason:  # One check's defect must not hide what the others find.
            self.report("D003", f"{type(reason).__name__}: {' '.join(str(reason).split())}")
            said = f"the check of {self.name} ended with an unexpected error"
            self.result.set_exception(Unchecked(said))

    def _needed(self, other: Check) -> Any:
        self._waits_for = other.name
        try:
            return other.result.result()
        finally:
            self._waits_for = None


def run_checks(target: CheckTarget, limit: TimeLimit) -> list[CheckReport]:
    """Make all checks of the target's role, side by side."""
    checks: dict[str, Check] = {}
    for name, (module, roles, needs) in CHECKS.items():
        if target.role in roles:
            checks[name] = Check(
                name,
                _imported(module, name),
                target=target,
                limit=limit,
                needs=[checks[each] for each in needs],
            )
    reports = run_all([*checks.values()])
    if all(check.result.done() for check in checks.values()):  # Else one may still ask the broker.
        broker = checks["broker"].result
        if broker.exception() is None:
            broker.result().close()
    return reports


def run_all(checks: Sequence[Check]) -> list[CheckReport]:
    """Start all; returns what each has found by its end or by the deadline."""
    for check in checks:
        check.start()
    return [check.finish() for check in checks]


def _imported(module: str, name: str) -> Callable[..., Any]:
    """A check's function, imported when it runs: the packages that it imports may be missing."""

    def run(check: Check, **needed: Any) -> Any:
        found = import_module(f"spu_assigner.stream.audit.doctor.{module}")
        return getattr(found, f"check_{name}")(check, **needed)

    return run
