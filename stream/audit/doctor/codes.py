"""The codes of `spu-assigner doctor`: `codes.toml`, read when one is needed."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorRule:
    """One kind of finding."""

    code: str
    name: str
    about: str  # what is found
    why: str  # its cause, or its effect
    fix: str  # what to do
    severity: Literal["fault", "warning"] = "fault"

    def explained(self) -> str:
        """All that there is to say of it."""
        strict = "" if self.severity == "fault" else " with --strict"
        return (
            f"{self.code} {self.name}: {self.about}\n{self.why}\nwhat to do: {self.fix}\n"
            f"a {self.severity}: the exit status is 1{strict}"
        )


@cache
def rules() -> dict[str, DoctorRule]:
    """All, by code."""
    table = tomllib.loads(Path(__file__).with_name("codes.toml").read_text("utf-8"))
    return {code: DoctorRule(code=code, **fields) for code, fields in table.items()}


def rule_of(code_or_name: str) -> DoctorRule | None:
    """The rule with this code or name; None: there is none."""
    asked = code_or_name.lower()
    return next(
        (each for each in rules().values() if asked in (each.code.lower(), each.name)), None
    )


def describe() -> str:
    """The table of all rules in Markdown."""
    lines = ["| code | name | what is found | what to do |", "| --- | --- | --- | --- |"]
    for rule in rules().values():
        weight = "" if rule.severity == "fault" else " (a warning)"
        lines.append(f"| {rule.code} | {rule.name} | {rule.about}{weight} | {rule.fix} |")
    return "\n".join(lines)
