"""Selectors with values that have spaces and commas, such as racks of availability sets."""

from __future__ import annotations

import pytest
from spu_assigner.core.base.selectors import SelectorError, selector_of

LABELS = {"rack": "FD0,UD1", "tier": "fast disk", "gpu": ""}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ('rack = "FD0,UD1"', True),
        ('rack="FD0,UD1",tier="fast disk"', True),
        ('rack = "FD0"', False),
        ('rack != "FD0,UD1"', False),
        ('rack in (a, "FD0,UD1")', True),
        ('rack notin ("FD0,UD1")', False),
        ('tier in ("fast disk")', True),
        ('gpu, rack = "FD0,UD1"', True),
        ('rack = "FD0,UD1", gpu', True),
        ("tier = fast,gpu", False),
        ("gpu, rack = FD0", False),
        ("rack in (FD0), gpu", False),
        ("rack = FD0, !gpu", False),
        ("rack, gpu", True),
    ],
)
def test_a_value_in_quotes_may_have_spaces_and_commas(text: str, holds: bool) -> None:
    """Other texts mean what they mean in Kubernetes."""
    assert selector_of(text).holds(LABELS) is holds


@pytest.mark.parametrize("text", ["rack = FD0,UD1", "rack == FD0 , UD1", "tier, rack != FD0,UD1"])
def test_a_rack_with_a_comma_and_no_quotes_is_an_error_that_says_how_to_write_it(text: str) -> None:
    """It would select the SPUs of rack FD0 that have a label UD1: none."""
    with pytest.raises(SelectorError) as error:
        selector_of(text)
    assert str(error.value).endswith(
        ' may mean one rack or a rack and a label; write rack = "FD0,UD1" for the rack, or put '
        "UD1 first for a label"
    )


@pytest.mark.parametrize(
    "text", ['rack = "FD0,UD1', 'rack = ""', 'a"b', 'rack in ("a" b)', "rack in (a,)", "rack in ()"]
)
def test_what_is_no_selector_is_refused(text: str) -> None:
    """Quotes that are not closed, or hold nothing, or stand within a word."""
    with pytest.raises(SelectorError, match="is no selector; expected "):
        selector_of(text)
