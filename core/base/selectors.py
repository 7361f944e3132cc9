"""Label selectors in Kubernetes' string form: which SPUs a rule is about.

    tier, !tier                       the SPU has the label; it has not
    tier = ssd, tier == ssd           it has the label with this value
    tier in (a, b)                    likewise with one of these values
    tier != ssd, tier notin (a, b)    it has not

Joined by commas, all must hold. A value in double quotes may have spaces and commas, as racks may:
`rack = "FD0,UD1"`. `rack = FD0,UD1` is refused: it may mean this, or a rack and a label. Source:
Kubernetes documentation, "Labels and Selectors".
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from spu_assigner.core.base.errors import AssignerError, bounded_repr
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
    rf"|(?P<key>{_WORD})(?:\s+(?P<many>in|notin)\s*\((?P<values>\s*{_VALUE}\s*(?:,\s*{_VALUE}\s*)*)\)"
    rf"|\s*(?P<one>==|=|!=)\s*(?P<value>{_VALUE}))?)\s*(?P<end>,|\Z)"
)
_find_values: Final = re.compile(_VALUE).findall


class SelectorError(AssignerError):
    """A text is no selector: `decide` answers with a rejection."""

    def __init__(self, text: str, fault: str = f"is no selector; expected {SELECTOR_FORM}") -> None:
        self.text = text
        super().__init__(f"{bounded_repr(text)} {fault}")


class Requirement(NamedTuple):
    """One condition: the label's value is one of these, or is not; without values: it is there."""

    key: str
    is_met_by_presence: bool  # of the label with one of `values`; else by its absence
    values: frozenset[str] | None = None  # None: any


@lru_cache(maxsize=_SELECTORS_KEPT)
def selector_of(text: str) -> tuple[Requirement, ...]:
    """The conditions of a selector, which must all hold.

    Raises:
        SelectorError: the text is none.
    """
    requirements: list[Requirement] = []
    match: re.Match[str] | None = None
    while match is None or match["end"]:
        before = match
        match = _requirement.match(text, match.end() if match else 0)
        if match is None or len(text) > SELECTOR_LENGTH_MAX:
            raise SelectorError(text)
        if before is not None:
            _refuse_split_rack(text, before, match)
        requirements.append(_requirement_of(match))
    return tuple(requirements)


def _requirement_of(match: re.Match[str]) -> Requirement:
    comparison, values = match["many"] or match["one"], match["values"] or match["value"]
    if comparison is None:
        is_there = match["absent"] is None
        return Requirement(match["key"] if is_there else match["absent"], is_there)
    named = frozenset(value.strip('"') for value in _find_values(values))
    return Requirement(match["key"], comparison in ("in", "=", "=="), named)


def _refuse_split_rack(text: str, before: re.Match[str], match: re.Match[str]) -> None:
    """Raise where a label alone stands behind a rack, of which it may be the rest."""
    label, rack = match["key"], before["value"] if before["key"] == RACK else None
    is_alone = label is not None and match["many"] is None and match["one"] is None
    if is_alone and rack is not None and not rack.startswith('"'):
        raise SelectorError(
            text,
            f'may mean one rack or a rack and a label; write {RACK} = "{rack},{label}" for the '
            f"rack, or put {label} first for a label",
        )
