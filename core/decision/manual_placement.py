"""The policy `manual`: lists as they were given, if the cluster has the SPUs and the slots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from spu_assigner.core.base.errors import Code, Rejection
from spu_assigner.core.base.events import Policy, SpuId, TopicCreate
from spu_assigner.core.base.records import Mode, Reason
from spu_assigner.core.decision.checks import check_room
from spu_assigner.core.decision.ring_changes import Assignment, filled_by
from spu_assigner.core.policies.manual_lists import ManualFault, is_spu_id, read_lists
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.ledger import NO_LIMIT

_Found = tuple[Code, str]
_CODES: Final = (
    Code.MANUAL_UNKNOWN_SPU,
    Code.MANUAL_SPU_LEAVING,
    Code.MANUAL_SPU_CORDONED,
    Code.MANUAL_SPU_FULL,
)


def place_manual(state: ClusterState, event: TopicCreate) -> Assignment:
    """The lists of a request as they are."""
    lists = read_lists(event.replicas)
    if isinstance(lists, ManualFault):
        raise Rejection(lists.code, lists.message)
    rows = enumerate(lists.matrix.tolist())
    for fault in spu_faults(state, ((at, list(enumerate(row))) for at, row in rows)):
        raise Rejection(fault.code, fault.message)
    check_room(state, event, lists)
    filled, reason = filled_by(state, lists), Reason(mode=Mode.LISTS)
    return Assignment(policy=Policy.MANUAL, replicas=lists, filled=filled, reason=reason)


def unknown_spus(state: ClusterState, lists: Sequence[Sequence[int]]) -> Iterator[ManualFault]:
    """Every SPU of these lists that the cluster does not have; its path is partition and place."""
    for partition, row in enumerate(lists):
        for place, spu_id in enumerate(row):
            if SpuId(spu_id) not in state.spus and is_spu_id(spu_id):
                [found], _ = _judged(state, spu_id)
                yield _fault(found, partition, spu_id, (partition, place))


def spu_faults(
    state: ClusterState, lists: Iterable[tuple[int, list[tuple[int, int]]]]
) -> Iterator[ManualFault]:
    """Every SPU that cannot take its replica, list by list in the order of `_CODES`.

    A list is its partition and its (place, SPU id).
    """
    judged: dict[int, list[_Found]] = {}
    left: dict[int, int] = {}  # free slots
    for partition, replicas in lists:
        faults: list[ManualFault] = []
        for place, spu_id in replicas:
            if spu_id not in judged:
                judged[spu_id], left[spu_id] = _judged(state, spu_id)
            left[spu_id] -= 1
            found = judged[spu_id]
            if left[spu_id] < 0:
                capacity = state.spus[SpuId(spu_id)].capacity
                full = f"has no free slot left of its {capacity}"
                found = [*found, (Code.MANUAL_SPU_FULL, full)]
            path = (partition, "replicas", place)
            faults += [_fault(each, partition, spu_id, path) for each in found]
        yield from sorted(faults, key=lambda fault: _CODES.index(fault.code))


def _judged(state: ClusterState, spu_id: int) -> tuple[list[_Found], int]:
    """Why an SPU cannot take replicas, slots aside, and how many slots it has for some."""
    spu = state.spus.get(SpuId(spu_id))
    if spu is None:
        return [(Code.MANUAL_UNKNOWN_SPU, f"is not in cluster {state.cluster_id!r}")], NO_LIMIT
    found = [(Code.MANUAL_SPU_LEAVING, "is being decommissioned")] if spu.leaving else []
    if spu.is_closed:
        why = "cordoned; uncordon it" if spu.cordoned else "tainted; untaint it"
        found.append((Code.MANUAL_SPU_CORDONED, f"is {why} first, or name another"))
    return found, spu.capacity - state.ledger.count(spu_id)


def _fault(found: _Found, partition: int, spu_id: int, path: tuple[int | str, ...]) -> ManualFault:
    code, why = found
    message = f"partition {partition} names SPU {spu_id}, which {why}"
    return ManualFault(code=code, message=message, path=path)
