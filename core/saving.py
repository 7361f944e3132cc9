"""A state as a text, and the state of such a text.

One JSON object: its form, the cluster, and `ClusterState.parts` by kind. What is read is checked:
types, then what the parts say of each other.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Annotated, Any, Final

from msgspec import Meta, convert, json
from spu_assigner.core.base.errors import InvalidStateError
from spu_assigner.core.base.limits import SPU_ID_MAX
from spu_assigner.core.base.records import (
    ChainEntry,
    Entry,
    ReplicaMap,
    SeenEntry,
    SpuChanged,
    Waiting,
)
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.base.structs import FrozenStruct, plain_lists
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.state.consistency_check import faults

FORM: Final = "spu-assigner-state-1"

_List = Annotated[list[Annotated[int, Meta(ge=0, le=SPU_ID_MAX)]], Meta(min_length=1)]
_Lists = Annotated[list[_List], Meta(min_length=1)]


class _SavedState(FrozenStruct, frozen=True, kw_only=True, tag_field="form", tag=FORM):
    cluster_id: str
    spus: list[SpuChanged]
    waiting: list[Waiting]
    chains: ChainEntry
    seen: list[SeenEntry]
    maps: list[ReplicaMap]


def state_to_json(state: ClusterState) -> str:
    """The state as a text, on one line; equal states give equal texts. O(replicas)."""
    of_kind = defaultdict[type, list[Any]](list)
    for part in state.parts():
        of_kind[type(part)].append(part)
    saved = _SavedState(
        cluster_id=state.cluster_id,
        spus=of_kind[SpuChanged],
        waiting=of_kind[Waiting],
        chains=of_kind[ChainEntry][0],
        seen=of_kind[SeenEntry],
        maps=of_kind[ReplicaMap],
    )
    return json.encode(saved, enc_hook=plain_lists).decode()


def state_from_json(text: str | bytes) -> ClusterState:
    """The state that `state_to_json` wrote: it decides as that one would have.

    Raises:
        InvalidStateError: the text is no such state, or only a part of one.
    """
    try:
        saved = json.decode(text, type=_SavedState, dec_hook=_lists)
    except (ValueError, RecursionError) as error:
        raise InvalidStateError(str(error)) from error
    state = ClusterState(saved.cluster_id)
    parts: list[ReplicaMap | Entry] = [*saved.spus, *saved.waiting, saved.chains, *saved.seen]
    for part in parts + saved.maps:
        if part.cluster_id != state.cluster_id:
            found = f"a {type(part).__name__} is of cluster {part.cluster_id!r}"
            raise InvalidStateError(f"{found}; expected {state.cluster_id!r}")
        state.restore(part)
    for fault in faults(state):
        raise InvalidStateError(fault)
    return state


def _lists(kind: type, value: object) -> ReplicaLists:
    """The replica lists of a map, which msgspec does not know."""
    return ReplicaLists.of_lists(convert(value, _Lists))
