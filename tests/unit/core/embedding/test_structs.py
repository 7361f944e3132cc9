"""Events and records are structs that `dataclasses` takes."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import get_args

import pytest
from spu_assigner.core.base.errors import InvalidEventError
from spu_assigner.core.base.events import Event, LeaveMode, SpuLeft, TopicGrow
from spu_assigner.core.base.records import Record

GROW = TopicGrow(event_id="e1", cluster_id="c1", topic="t", partitions=3)


@pytest.mark.parametrize("cls", [*get_args(Event), *get_args(Record)])
def test_dataclasses_knows_the_fields_of_each(cls: type) -> None:
    """In the order of their keywords, base classes first; whoever embeds the core may read them."""
    assert is_dataclass(cls)
    assert [each.name for each in fields(cls)] == list(cls.__struct_fields__)  # type: ignore[attr-defined]


def test_a_replaced_event_is_checked_like_a_new_one() -> None:
    assert replace(GROW, partitions=4) == TopicGrow(
        event_id="e1", cluster_id="c1", topic="t", partitions=4
    )
    assert replace(SpuLeft(event_id="e", cluster_id="c", spu_id=1), mode="offline").mode is (  # type: ignore[arg-type]
        LeaveMode.OFFLINE
    )
    with pytest.raises(InvalidEventError, match="partitions"):
        replace(GROW, partitions="4")  # type: ignore[arg-type]
