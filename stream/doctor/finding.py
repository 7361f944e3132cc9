"""What `spu-assigner doctor` finds: each kind with a code that stays, and how it is told.

A fault keeps the role from its work, or will; a warning does not. The first digit of a code says
what it is about: 0 the examination itself, 1 this machine, 2 the broker, 3 rights and topics,
4 the checkpoint alone, 5 the checkpoint and Kafka together.
"""

from __future__ import annotations

from dataclasses import dataclass

from spu_assigner.stream.common.printable import printable


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorRule:
    """One kind of finding."""

    code: str
    name: str
    about: str  # what is found
    why: str  # what comes of it
    fix: str  # what to do
    is_fault: bool = True  # else a warning


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFinding:
    """One thing that is wrong here."""

    check: str
    rule: DoctorRule
    message: str  # what was found and what was expected
    fix: str  # what to do about it here

    def as_json(self) -> dict[str, object]:
        """For programs."""
        return {
            "check": self.check,
            "code": self.rule.code,
            "name": self.rule.name,
            "severity": "fault" if self.rule.is_fault else "warning",
            "message": printable(self.message),
            "mend": printable(self.fix),
        }


def fault(code: str, name: str, about: str, why: str, fix: str) -> DoctorRule:
    """A rule of what keeps the role from its work."""
    return DoctorRule(code=code, name=name, about=about, why=why, fix=fix)


def warning(code: str, name: str, about: str, why: str, fix: str) -> DoctorRule:
    """A rule of what does not, yet."""
    return DoctorRule(code=code, name=name, about=about, why=why, fix=fix, is_fault=False)
