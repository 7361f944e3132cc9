"""A join describes its SPU whole: its answer names what the SPU had and the join does not name."""

from __future__ import annotations

from typing import Any

import pytest
from spu_assigner.core.base.constraints import Taint, TaintEffect
from spu_assigner.core.base.events import LeaveMode
from spu_assigner.core.base.records import RingChange, RingEvent
from spu_assigner.schemas.messages.codec import decode_record, encode_record
from support.events.one_cluster import OneCluster

TAINT = Taint("pool", "pay", TaintEffect.EVICT)
DESCRIBED: dict[str, Any] = {
    "rack": "r1",
    "cores": 4,
    "capacity": 50,
    "labels": {"zone": "a", "tier": "ssd"},
    "resources": {"disk_bytes": 9, "net": 1},
    "taints": (TAINT,),
}
WHOLE = ": a join describes its SPU whole"


def messages(life: OneCluster, **described: Any) -> list[tuple[RingChange, str | None]]:
    found = life.join(1, **described)
    return [(each.change, each.message) for each in found if isinstance(each, RingEvent)]


@pytest.mark.parametrize(
    ("again", "dropped"),
    [
        (DESCRIBED, None),
        ({**DESCRIBED, "labels": {"zone": "b", "tier": "hdd", "row": "1"}}, None),
        ({**DESCRIBED, "taints": (Taint("pool", "x", TaintEffect.EVICT),)}, None),
        ({**DESCRIBED, "rack": None}, "rack 'r1'"),
        ({**DESCRIBED, "cores": 1}, "4 cores (1 now)"),
        ({**DESCRIBED, "cores": 2}, None),
        ({**DESCRIBED, "capacity": None}, "capacity 50 (27998 now)"),
        ({**DESCRIBED, "labels": {"zone": "a"}}, "label 'tier=ssd'"),
        ({**DESCRIBED, "labels": None}, "label 'tier=ssd', label 'zone=a'"),
        ({**DESCRIBED, "resources": {"net": 2}}, "disk_bytes 9"),
        ({**DESCRIBED, "taints": ()}, "taint 'pool=pay:evict'"),
        (
            {},
            "4 cores (1 now), capacity 50 (6998 now), rack 'r1', label 'tier=ssd', label 'zone=a', "
            "disk_bytes 9, net 1, taint 'pool=pay:evict'",
        ),
    ],
)
def test_the_answer_names_what_a_join_dropped(again: dict[str, Any], dropped: str | None) -> None:
    """A label has gone where its name is given no value; another value is no loss."""
    life = OneCluster()
    assert messages(life, **DESCRIBED)[0] == (RingChange.JOINED, None)
    said = None if dropped is None else f"no longer has {dropped}{WHOLE}"
    first, *others = messages(life, **again)
    assert first == (RingChange.UPDATED, said)
    assert all(message is None for _, message in others)
    assert messages(life, **again) == [(RingChange.UPDATED, None)]


@pytest.mark.parametrize("mode", list(LeaveMode))
def test_a_return_says_it_too(mode: LeaveMode) -> None:
    life = OneCluster()
    life.join(1, labels={"zone": "a"})
    life.create("t", 1, 1)
    life.leave(1, mode)
    expected = (RingChange.JOINED, f"no longer has label 'zone=a'{WHOLE}")
    assert messages(life)[0] == expected


def test_the_message_is_bounded_and_goes_through_kafka() -> None:
    life = OneCluster()
    life.join(1, labels={f"{number}" * 5: "\U0001f980" * 9_000 for number in range(1, 7)})
    life.join(1, labels={f"n{number}": "x" * 900 for number in range(1, 30)})
    (answer,) = life.join(1)
    assert isinstance(answer, RingEvent)
    assert answer.message is not None
    assert answer.message.endswith(f" and 21 more{WHOLE}")
    assert len(answer.message) < 2_000
    assert decode_record(encode_record(answer)) == answer
