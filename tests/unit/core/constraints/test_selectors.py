"""Selectors with values that have spaces and commas, such as racks of availability sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.base.events import SpuJoined
from spu_assigner.core.base.selectors import SelectorError, selector_of
from spu_assigner.core.constraints.spu_labels import SpuLabels
from support.events.one_cluster import OneCluster
from support.model.constrained_oracle import holds as selects

LABELS = {"rack": "FD0,UD1", "tier": "fast disk", "gpu": ""}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ('rack = "FD0,UD1"', True),
        ('rack="FD0,UD1",tier="fast disk"', True),
        ('rack != "FD0,UD1"', False),
        ('rack in (a, "FD0,UD1")', True),
        ('rack notin ("FD0,UD1")', False),
        ('gpu, rack = "FD0,UD1"', True),
        ('rack = "FD0,UD1", gpu', True),
        ("tier = fast,gpu", False),
        ("rack in (FD0), gpu", False),
        ("rack = FD0, !gpu", False),
    ],
)
def test_a_value_in_quotes_may_have_spaces_and_commas(text: str, holds: bool) -> None:
    cluster = OneCluster()
    cluster.join(0, rack=LABELS["rack"], labels=LABELS)
    assert SpuLabels(cluster.state.spus.values()).holding(text).tolist() == [holds]


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


KEYS = ("a", "b", "rack", "spu_id")
VALUES = ("", "1", "2", "3")
REQUIREMENTS = st.sampled_from(
    [f"!{key}" for key in KEYS]
    + [
        f"{key}{rest}"
        for key in KEYS
        for rest in ("", "=1", "!=2", " in (1,2,9)", " notin (2,3)", " in (9)", " notin (9)")
    ]
)


@given(
    spus=st.lists(st.dictionaries(st.sampled_from(KEYS[:3]), st.sampled_from(VALUES)), max_size=12),
    # A bare key behind a rack could be a part of its name.
    text=st.lists(REQUIREMENTS, min_size=1, max_size=3).map(
        lambda texts: ",".join(sorted(texts, key=lambda text: text not in KEYS))
    ),
    label=st.sampled_from([*KEYS, "nowhere"]),
)
def test_all_spus_at_once_are_selected_and_grouped_as_each_by_itself(
    spus: list[dict[str, str]], text: str, label: str
) -> None:
    """A label of an SPU that is called as its rack or id does not count."""
    described = [
        SpuJoined(
            event_id=f"e{at}", cluster_id="c", spu_id=at, rack=own.get("rack") or None, labels=own
        )
        for at, own in enumerate(spus)
    ]
    cluster = OneCluster(*described)
    labels = SpuLabels([*reversed(cluster.state.spus.values())])
    named = [{**own, "rack": own.get("rack", ""), "spu_id": str(at)} for at, own in enumerate(spus)]
    assert labels.holding(text).tolist() == [selects(text, own) for own in named]
    values = [own.get(label, "") for own in named]
    order = sorted(set(values))
    groups, size = labels.groups(label)
    assert (groups.tolist(), size) == ([order.index(value) for value in values], len(order))
