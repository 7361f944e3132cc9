"""What a code of `spu-assigner doctor` means, and the table of all."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Final

from spu_assigner.stream.doctor import kafka_rules as doctor_kafka_rules
from spu_assigner.stream.doctor import rules as doctor_rules
from spu_assigner.stream.doctor.finding import DoctorRule

_MODULES: Final[tuple[ModuleType, ...]] = (doctor_rules, doctor_kafka_rules)


def rules() -> list[DoctorRule]:
    """All, by their codes."""
    return sorted(_found(), key=lambda rule: rule.code)


def rule_of(code: str) -> DoctorRule | None:
    """The rule with this code or name; None: there is none."""
    return next((rule for rule in _found() if code.lower() in (rule.code.lower(), rule.name)), None)


def explained(rule: DoctorRule) -> str:
    """All that there is to say of a rule."""
    weight = "a fault" if rule.is_fault else "a warning"
    return (
        f"{rule.code} {rule.name}: {rule.about}\n{rule.why}\nwhat to do: {rule.fix}\n"
        f"{weight}: the exit status is 1{'' if rule.is_fault else ' with --strict'}"
    )


def describe() -> str:
    """The table of all rules in Markdown."""
    lines = ["| code | name | what is found | what to do |", "| --- | --- | --- | --- |"]
    for rule in rules():
        weight = "" if rule.is_fault else " (a warning)"
        lines.append(f"| {rule.code} | {rule.name} | {rule.about}{weight} | {rule.fix} |")
    return "\n".join(lines)


def _found() -> Iterator[DoctorRule]:
    for module in _MODULES:
        yield from (each for each in vars(module).values() if isinstance(each, DoctorRule))
