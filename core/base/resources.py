"""What SPUs have beside replica slots, and what partitions need of it: amounts of named resources.

Names are free; by convention `disk_bytes`, `bytes_in_per_s`, `bytes_out_per_s`, `cores_milli`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Final

from spu_assigner.core.base.errors import bounded_repr
from spu_assigner.core.base.limits import AMOUNT_MAX, RESOURCE_NAME_LENGTH_MAX, RESOURCES_MAX
from spu_assigner.core.base.structs import FrozenStruct

Amounts = tuple[tuple[str, int], ...]  # by name, each once

BYTES: Final = "disk_bytes"  # the resource that says how large a replica is

_is_resource_name = re.compile(rf"[a-zA-Z0-9._-]{{1,{RESOURCE_NAME_LENGTH_MAX}}}\Z").match


class Need(FrozenStruct, frozen=True):
    """What the replicas of a topic need, each of them."""

    demand: Amounts  # what each replica needs of resources, by name
    leader_demand: Amounts = ()  # what the leader needs, where that is another amount

    @staticmethod
    def of(
        demand: Mapping[str, int] | None, leader_demand: Mapping[str, int] | None
    ) -> Need | None:
        """What an event says; None: it names no amount but 0."""
        if not demand and not leader_demand:
            return None
        need = Need(amounts_of(demand), amounts_of(leader_demand))
        return need if any(amount for _, amount in need.demand + need.leader_demand) else None

    def by_name(self) -> tuple[tuple[str, int, int], ...]:
        """Of each resource its name, what a follower needs, and what a leader needs."""
        if not self.leader_demand:
            return tuple([(name, amount, amount) for name, amount in self.demand])
        followers = dict(self.demand)
        leaders = followers | dict(self.leader_demand)
        return tuple([(name, followers.get(name, 0), leaders[name]) for name in sorted(leaders)])


def dominant_share(used: Iterable[tuple[str | None, int, int]]) -> tuple[float, str | None]:
    """The largest share that is used, and of what; the first of equals.

    `used`: name (None: replica slots), what is used, what there is. Nothing is no share.
    """
    shares = [(amount / has, name) for name, amount, has in used if has]
    return max(shares, key=itemgetter(0), default=(0.0, None))


def amounts_of(given: Mapping[str, int] | None) -> Amounts:
    """The amounts by name."""
    return tuple(sorted(given.items())) if given else ()


def amounts_fault(field: str, given: Mapping[str, int] | None) -> str | None:
    """What is wrong with amounts that came with an event; None: nothing."""
    if not given:
        return None
    if len(given) > RESOURCES_MAX:
        return f"{field} names {len(given)} resources; expected at most {RESOURCES_MAX}"
    for name, amount in sorted(given.items()):
        if not _is_resource_name(name):
            expected = f"1 to {RESOURCE_NAME_LENGTH_MAX} of [a-zA-Z0-9._-]"
            return f"{field} names {bounded_repr(name)}; expected {expected}"
        if not 0 <= amount <= AMOUNT_MAX:
            return f"{field}.{name} is {bounded_repr(amount)}; expected 0 to {AMOUNT_MAX}"
    return None
