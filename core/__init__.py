"""Placement without Kafka or Spark, for those who embed it.

Names are loaded when first used: whoever needs an event alone does not pay for numpy. Start with
`Assigner`, or with `step` and `ClusterState` where the states are kept elsewhere.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from spu_assigner.core.assigner import Assigner
    from spu_assigner.core.base.errors import AssignerError, Code, InvalidEventError, InvariantError
    from spu_assigner.core.base.events import (
        ClusterRebalance,
        Event,
        LeaveMode,
        OnShortage,
        Policy,
        SpuCordon,
        SpuDemote,
        SpuJoined,
        SpuLeft,
        SpuUncordon,
        SpuUndemote,
        TopicAdopted,
        TopicCreate,
        TopicDelete,
        TopicGrow,
        TopicRelease,
        TopicReplication,
    )
    from spu_assigner.core.base.records import (
        Answer,
        Record,
        ReplicaMap,
        RingChange,
        RingEvent,
        Status,
        TopicStatus,
    )
    from spu_assigner.core.base.replica_lists import ReplicaLists
    from spu_assigner.core.decision.answers import answers
    from spu_assigner.core.decision.machine import decide, step
    from spu_assigner.core.state.cluster_state import ClusterState, evolve

__all__ = [
    "Answer",
    "Assigner",
    "AssignerError",
    "ClusterRebalance",
    "ClusterState",
    "Code",
    "Event",
    "InvalidEventError",
    "InvariantError",
    "LeaveMode",
    "OnShortage",
    "Policy",
    "Record",
    "ReplicaLists",
    "ReplicaMap",
    "RingChange",
    "RingEvent",
    "SpuCordon",
    "SpuDemote",
    "SpuJoined",
    "SpuLeft",
    "SpuUncordon",
    "SpuUndemote",
    "Status",
    "TopicAdopted",
    "TopicCreate",
    "TopicDelete",
    "TopicGrow",
    "TopicRelease",
    "TopicReplication",
    "TopicStatus",
    "answers",
    "decide",
    "evolve",
    "step",
]

_HOMES: Final = {
    "decision.answers": ("answers",),
    "assigner": ("Assigner",),
    "base.errors": ("AssignerError", "Code", "InvalidEventError", "InvariantError"),
    "base.events": (
        "ClusterRebalance",
        "Event",
        "LeaveMode",
        "OnShortage",
        "Policy",
        "SpuCordon",
        "SpuDemote",
        "SpuJoined",
        "SpuLeft",
        "SpuUncordon",
        "SpuUndemote",
        "TopicAdopted",
        "TopicCreate",
        "TopicDelete",
        "TopicGrow",
        "TopicRelease",
        "TopicReplication",
    ),
    "decision.machine": ("decide", "step"),
    "base.records": (
        "Answer",
        "Record",
        "ReplicaMap",
        "RingChange",
        "RingEvent",
        "Status",
        "TopicStatus",
    ),
    "base.replica_lists": ("ReplicaLists",),
    "state.cluster_state": ("ClusterState", "evolve"),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
