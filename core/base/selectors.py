"""Label selectors in Kubernetes' string form: which SPUs a rule is about.

    tier              the SPU has the label
    !tier             it has not
    tier = ssd        it has the label with this value; also tier == ssd
    tier != ssd       it has not the label with this value
    tier in (a, b)    it has the label with one of these values
    tier notin (a, b) it has not the label with one of these values

Joined by commas, all must hold. A value in double quotes may have spaces and commas, as racks may:
`rack = "FD0,UD1"`. What was meant so without quotes, `rack = FD0,UD1`, is refused, though it could
be a rack and a label. Source: Kubernetes documentation, "Labels and Selectors".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from spu_assigner.core.base.bounded_repr import bounded_repr
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.limits import SELECTOR_LENGTH_MAX

SELECTOR_FORM: Final = (
    "key, !key, key = value, key != value, key in (a, b) or key notin (a, b), joined by commas; "
    "a value with a comma in double quotes"
)
RACK: Final = "rack"  # the label that every SPU has: its rack, "" for none
_SELECTORS_KEPT: Final = 1_024  # parsed: a job meets few different ones

_WORD: Final = r"[^\s,()=!\"]+"
_VALUE: Final = rf'(?:{_WORD}|"[^"]+")'
_requirement: Final = re.compile(
    rf"\s*(?:!\s*(?P<absent>{_WORD})"
    rf"|(?P<key>{_WORD})(?:\s+(?P<many>in|notin)\s*\((?P<values>(?:[^()\"]|\"[^\"]+\")*)\)"
    rf"|\s*(?P<one>==|=|!=)\s*(?P<value>{_VALUE}))?)\s*(?P<end>,|\Z)"
)
_find_value: Final = re.compile(rf"\s*(?P<value>{_VALUE})\s*(?P<end>,|\Z)").match


class SelectorError(AssignerError):
    """A text is no selector.

    Caught by `decide`, answered with a rejection.
    """

    def __init__(self, text: str, fault: str = f"is no selector; expected {SELECTOR_FORM}") -> None:
        self.text = text
        super().__init__(f"{bounded_repr(text)} {fault}")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition: the label's value is one of these, or is not; without values: it is there."""

    key: str
    is_met_by_presence: bool  # of the label with one of `values`; else by its absence
    values: frozenset[str] | None = None  # None: any


@dataclass(frozen=True, slots=True)
class Selector:
    """Conditions that must all hold."""

    requirements: tuple[Requirement, ...]


@lru_cache(maxsize=_SELECTORS_KEPT)
def selector_of(text: str) -> Selector:
    """The selector that a text is.

    Raises:
        SelectorError: it is none.
    """
    requirements = []
    position = 0
    before: re.Match[str] | None = None
    is_open = len(text) <= SELECTOR_LENGTH_MAX
    while is_open:
        match = _requirement.match(text, position)
        if match is None:
            break
        if before is not None:
            _refuse_split_rack(text, before, match)
        requirements.append(_requirement_of(text, match))
        before = match
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
        return Requirement(key, match["many"] == "in", _values_of(text, match["values"]))
    if match["one"] is not None:
        return Requirement(key, match["one"] != "!=", frozenset({match["value"].strip('"')}))
    return Requirement(key, is_met_by_presence=True)


def _values_of(text: str, listed: str) -> frozenset[str]:
    """The values between the parentheses of a selector."""
    values: list[str] = []
    position, is_open = 0, True
    while is_open:
        found = _find_value(listed, position)
        if found is None:
            raise SelectorError(text)
        values.append(found["value"].strip('"'))
        position, is_open = found.end(), found["end"] == ","
    return frozenset(values)


def _refuse_split_rack(text: str, before: re.Match[str], match: re.Match[str]) -> None:
    """Return unless a label alone stands behind a rack, of which it may be the rest."""
    is_alone = match["key"] is not None and match["many"] is None and match["one"] is None
    rack = before["value"] if before["key"] == RACK else None
    if is_alone and rack is not None and not rack.startswith('"'):
        label = match["key"]
        raise SelectorError(
            text,
            f'may mean one rack or a rack and a label; write {RACK} = "{rack},{label}" for the '
            f"rack, or put {label} first for a label",
        )
