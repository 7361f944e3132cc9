"""Label selectors in Kubernetes' string form: which SPUs a rule is about.

    tier              the SPU has the label
    !tier             it has not
    tier = ssd        it has the label with this value; also tier == ssd
    tier != ssd       it has not the label with this value
    tier in (a, b)    it has the label with one of these values
    tier notin (a, b) it has not the label with one of these values

Joined by commas, all must hold. Source: Kubernetes documentation, "Labels and Selectors".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from spu_assigner.core.base.bounded_repr import bounded_repr
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.limits import SELECTOR_LENGTH_MAX

SELECTOR_FORM: Final = (
    "key, !key, key = value, key != value, key in (a, b) or key notin (a, b), joined by commas"
)
_SELECTORS_KEPT: Final = 1_024  # parsed: a job meets few different ones

_WORD: Final = r"[^\s,()=!]+"
_requirement: Final = re.compile(
    rf"\s*(?:!\s*(?P<absent>{_WORD})"
    rf"|(?P<key>{_WORD})(?:\s+(?P<many>in|notin)\s*\((?P<values>[^()]*)\)"
    rf"|\s*(?P<one>==|=|!=)\s*(?P<value>{_WORD}))?)\s*(?P<end>,|\Z)"
)
_is_word: Final = re.compile(_WORD).fullmatch


class SelectorError(AssignerError):
    """A text is no selector.

    Caught by `decide`, answered with a rejection.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(f"{bounded_repr(text)} is no selector; expected {SELECTOR_FORM}")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition: the label's value is one of these, or is not; without values: it is there."""

    key: str
    is_met_by_presence: bool  # of the label with one of `values`; else by its absence
    values: frozenset[str] | None = None  # None: any

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether an SPU with these labels meets it."""
        value = labels.get(self.key)
        is_present = value is not None and (self.values is None or value in self.values)
        return is_present is self.is_met_by_presence


@dataclass(frozen=True, slots=True)
class Selector:
    """Conditions that must all hold."""

    requirements: tuple[Requirement, ...]

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether an SPU with these labels is selected."""
        return all(each.holds(labels) for each in self.requirements)


@lru_cache(maxsize=_SELECTORS_KEPT)
def selector_of(text: str) -> Selector:
    """The selector that a text is.

    Raises:
        SelectorError: it is none.
    """
    requirements = []
    position = 0
    is_open = len(text) <= SELECTOR_LENGTH_MAX
    while is_open:
        match = _requirement.match(text, position)
        if match is None:
            break
        requirements.append(_requirement_of(text, match))
        position = match.end()
        is_open = match["end"] == ","
    else:
        if requirements:
            return Selector(tuple(requirements))
    raise SelectorError(text)


def _requirement_of(text: str, match: re.Match[str]) -> Requirement:
    if match["absent"] is not None:
        return Requirement(match["absent"], is_met_by_presence=False)
    key = match["key"]
    if match["many"] is not None:
        values = [value.strip() for value in match["values"].split(",")]
        if not all(map(_is_word, values)):
            raise SelectorError(text)
        return Requirement(key, match["many"] == "in", frozenset(values))
    if match["one"] is not None:
        return Requirement(key, match["one"] != "!=", frozenset({match["value"]}))
    return Requirement(key, is_met_by_presence=True)
