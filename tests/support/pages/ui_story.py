"""What the pages are looked at with: two clusters with everything that has a mark of its own."""

from __future__ import annotations

from collections.abc import Sequence

from spu_assigner.core.base.events import Event, LeaveMode, OnShortage, Policy
from support.events.builders import Events
from support.shard.stores import Raw

NAMES = ("orders", *(f"topic-{number}" for number in range(17)))


def story() -> list[Sequence[Event | Raw]]:
    """Batches of events."""
    prod, edge = Events("prod-eu"), Events("edge-lab", first=1_000)
    joins = [
        prod.join(each, rack=f"eu-west-1{'abc'[each // 6]}", capacity=60 if each % 6 < 4 else 90)
        for each in range(18)
    ]
    joins += [
        prod.join(18, rack="eu-west-1a", capacity=12),
        prod.join(19, rack="eu-west-1b", capacity=60),
    ]
    policies = (Policy.FLUVIO, Policy.BALANCED, Policy.FLUVIO, Policy.KAFKA)
    creates = [
        prod.create(name, 6 + 3 * (number % 4), 3, policy=policies[number % 4])
        for number, name in enumerate(NAMES)
    ]
    return [
        joins,
        creates[:9],
        [prod.leave(19, mode=LeaveMode.OFFLINE), prod.leave(11, mode=LeaveMode.DECOMMISSION)],
        creates[9:],
        [
            prod.manual("pinned", [17, 4, 8], [3, 9, 14]),
            prod.leave(5, mode=LeaveMode.OFFLINE),
            prod.create("archive", 4, 24, policy=Policy.FLUVIO, on_shortage=OnShortage.WAIT),
            prod.create("orders", 3, 3, policy=Policy.FLUVIO),
            prod.grow("orders", 12),
            (b"prod-eu", b'{"type":"topic_create","topic":"typed by hand"}'),
        ],
        [
            *edge.joins(0, 1, 2, 3, capacity=20),
            edge.create("sensors", 8, 2, policy=Policy.FLUVIO),
            edge.create("alarms", 2, 3, policy=Policy.FLUVIO),
        ],
    ]
