"""The codes of `spu-assigner lint`, from `codes.toml`; those of refusals are the core's."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from spu_assigner.core.base.errors import Code
from spu_assigner.schemas.errors import LineFault


@dataclass(frozen=True, slots=True, kw_only=True)
class LintRule:
    """One kind of fault."""

    code: str  # E… an error: it will be rejected, or cannot be read; W… a warning
    name: str
    about: str  # what is found
    fix: str  # what to do
    by_history: bool = False  # depends on SPUs and topics that existed before
    in_part: bool = False  # only of clusters whose beginning is not in the file

    @property
    def is_error(self) -> bool:
        return self.code.startswith("E")


@cache
def rules() -> dict[str, LintRule]:
    """All, by name, in the order of their codes."""
    table = tomllib.loads(Path(__file__).with_name("codes.toml").read_text("utf-8"))
    return {fields["name"]: LintRule(code=code, **fields) for code, fields in table.items()}


def rule_of(code_or_name: str) -> LintRule | None:
    """The rule with this code or name; None: there is none."""
    asked = code_or_name.lower()
    return next(
        (each for each in rules().values() if asked in (each.code.lower(), each.name)), None
    )


def name_of(refusal: Code | LineFault) -> str:
    """The name of the rule of an event that the core refuses, or of a line that makes no event."""
    return refusal.value.lower().replace("_", "-")


def describe() -> str:
    """The table of all rules for docs/lint.md."""
    rows = [f"| {rule.code} | {rule.name} | {rule.about} |" for rule in rules().values()]
    return "\n".join(["| code | name | what is found |", "| --- | --- | --- |", *rows])
