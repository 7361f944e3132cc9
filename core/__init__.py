"""Placement without Kafka or Spark, for those who embed it.

Start with `Assigner`, or with `step` and `ClusterState` where the states are kept elsewhere. Names
are loaded when first used: whoever needs an event alone does not pay for numpy.
"""

# ruff: noqa: F403, F405 — a type checker finds each name of `__all__` in the module that has it

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from spu_assigner.core.assigner import *
    from spu_assigner.core.base.constraints import *
    from spu_assigner.core.base.errors import *
    from spu_assigner.core.base.events import *
    from spu_assigner.core.base.records import *
    from spu_assigner.core.base.replica_lists import *
    from spu_assigner.core.base.resources import *
    from spu_assigner.core.base.structs import *
    from spu_assigner.core.decision.answers import *
    from spu_assigner.core.decision.machine import *
    from spu_assigner.core.explain.decisions import *
    from spu_assigner.core.explain.placement_decision import *
    from spu_assigner.core.saving import *
    from spu_assigner.core.state.cluster_state import *
    from spu_assigner.core.whatif.failure import *

# One name a line would be a hundred lines.
# fmt: off
__all__ = [
    "AmountHeld", "Answer", "Assigner", "AssignerError", "Chain", "ChainEntry", "ChainsChanged",
    "ClusterGone", "ClusterRebalance", "ClusterState", "Code", "Constraints", "Entry", "EntryGone",
    "EntryKind", "Event", "EventSeen", "ExplainingAssigner", "FailureAnalysis", "FailureOutcome",
    "FailureSweep", "InvalidEventError", "InvalidStateError", "InvariantError", "LeaveMode", "Load",
    "Mode", "Move", "Need", "OnShortage", "Order", "Passed", "PlacementDecision", "PlacementStep",
    "Policy", "Preference", "Reason", "Reasons", "Record", "RecordedRing", "ReplicaLists",
    "ReplicaMap", "Retries", "RetriesChanged", "RingChange", "RingEvent", "SeenEntry",
    "SpreadLevel", "SpuChanged", "SpuCordon", "SpuDemote", "SpuEvent", "SpuGone", "SpuId",
    "SpuJoined", "SpuLeft", "SpuUncordon", "SpuUndemote", "Status", "Taint", "TaintEffect", "Taken",
    "Toleration", "TopicAdopted", "TopicConstraints", "TopicCreate", "TopicDelete", "TopicDemand",
    "TopicGrow", "TopicRelease", "TopicReplication", "TopicStatus", "Wait", "Waiting",
    "WaitingSettled", "Why", "answers", "as_dict", "decide", "evolve", "state_from_json",
    "state_to_json", "step", "sweep_racks", "sweep_spus",
]

# The modules that define them, those that load least first.
_HOMES: Final = (
    "base.errors", "base.constraints", "base.events", "base.structs", "base.resources",
    "base.replica_lists", "base.records", "state.cluster_state", "saving", "decision.answers",
    "decision.machine", "assigner", "whatif.failure", "explain.placement_decision",
    "explain.decisions",
)
# fmt: on

if not TYPE_CHECKING:  # A type checker would take every name for known.

    def __getattr__(name: str) -> object:
        if name in __all__:
            for home in _HOMES:
                names = vars(import_module(f"{__name__}.{home}"))
                if name in names:
                    return globals().setdefault(name, names[name])
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
