"""Checks that run side by side, each in a thread of its own, and end by a common time.

Rules:
- A check that fails stops no other. One that needs another's answer waits for it, and where there
  is none says so: "not checked, because …".
- When time is up, what a check has found until then counts; the check itself is told as
  unfinished. Its thread is a daemon: nothing waits for a name server or a port that is silent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from spu_assigner.stream.common.daemon_threads import DaemonThread
from spu_assigner.stream.doctor.finding import DoctorFinding, DoctorRule
from spu_assigner.stream.doctor.rules import BROKEN_CHECK, PACKAGE_BROKEN, UNFINISHED

T = TypeVar("T")
_Other = TypeVar("_Other")


class Unchecked(Exception):  # noqa: N818  # no error: it is what a check has to say
    """There is nothing to go on with; its text is the reason."""


class Check(Generic[T]):
    """One check; what it finds, and what it has to say to those that need it."""

    def __init__(self, name: str, what: Callable[[Check[T]], T], *, deadline: float) -> None:
        self.name = name
        self.summary = ""  # what was found, where that is of interest
        self.findings: list[DoctorFinding] = []
        self.left_out: list[str] = []  # parts that could not be looked at
        self.unchecked: str | None = None  # why it has no answer
        self.answers: list[T] = []  # one, or none
        self._what = what
        self._deadline = deadline
        self._ended = threading.Event()
        self._waits_for: str | None = None

    @property
    def seconds_left(self) -> float:
        """Until all is to end; never none at all."""
        return max(0.05, self._deadline - time.monotonic())

    @property
    def has_fault(self) -> bool:
        return any(finding.rule.is_fault for finding in self.findings)

    @property
    def is_running(self) -> bool:
        """Whether its thread is at work, be it waited for or not."""
        return not self._ended.is_set()

    def tell(self, rule: DoctorRule, message: str, fix: str | None = None) -> None:
        """Note a finding; what to do is the rule's, unless it can be said better here."""
        self.findings.append(
            DoctorFinding(check=self.name, rule=rule, message=message, fix=fix or rule.fix)
        )

    def start(self) -> None:
        """Begin."""
        DaemonThread(self._run, f"check {self.name}").start()

    def needs(self, other: Check[_Other]) -> _Other:
        """The answer of another check.

        Raises:
            Unchecked: it has none.
        """
        self._waits_for = other.name
        other._ended.wait()
        self._waits_for = None
        if not other.answers:
            raise Unchecked(other.unchecked)
        return other.answers[0]

    def finish(self) -> Check[T]:
        """Wait for its end, or for the common one; gives what was found by then."""
        if self._ended.wait(max(0.0, self._deadline - time.monotonic())):
            return self
        told = Check(self.name, self._what, deadline=self._deadline)  # Its thread goes on.
        told.summary, told.findings = self.summary, [*self.findings]
        told.left_out = [*self.left_out]
        if self._waits_for is None:
            told.unchecked = f"{self.name} did not end in time"
            told.tell(UNFINISHED, f"the check of {told.unchecked}")
        else:
            told.unchecked = f"{self._waits_for} did not end in time"
        return told

    def _run(self) -> None:
        try:
            self.answers.append(self._what(self))
        except Unchecked as reason:
            self.unchecked = str(reason)
        except ImportError as reason:
            self.unchecked = f"a package cannot be imported ({reason})"
            self.tell(PACKAGE_BROKEN, str(reason))
        except Exception as reason:  # One check's defect must not hide what the others find.
            self.unchecked = f"the check of {self.name} ended with an error of its own"
            self.tell(BROKEN_CHECK, f"{type(reason).__name__}: {' '.join(str(reason).split())}")
        finally:
            self._ended.set()


def run_all(checks: Sequence[Check[Any]]) -> list[Check[Any]]:
    """Start all; gives them as they are when each has ended or time is up."""
    for check in checks:
        check.start()
    return [check.finish() for check in checks]
