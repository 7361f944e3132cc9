"""What each code of `simulate --check` is about, and how to fix it.

The code of a rejection is the core's, that of a line that makes no event its `LineFault`. Both are
errors; the codes of `WARNINGS` are of what is accepted and probably not intended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from spu_assigner.core.base.constraints import NO_CONSTRAINTS
from spu_assigner.core.base.limits import NAME_LENGTH_MAX
from spu_assigner.schemas.errors import LineFault


class Advice(NamedTuple):
    """How to fix a fault."""

    fix: str
    field: str = ""  # what a rejection is about; empty: its message says so, or the whole event
    legal: Mapping[str, Any] = {}  # with these the event is decided again, for its other faults
    is_by_history: bool = False  # it depends on the SPUs and topics that were there before


def _set(field: str, legal: Any, fix: str) -> Advice:
    return Advice(fix, field, {field: legal})


def _later(field: str, fix: str, legal: Mapping[str, Any] = {}) -> Advice:
    return Advice(fix, field, legal, is_by_history=True)


_START: Final = "name 0 to 2147483647, with fluvio and kafka only"
_FREE_NAME: Final = {"topic": "-" * NAME_LENGTH_MAX}
_NO_DEMAND: Final[Mapping[str, Any]] = {"demand": {}, "leader_demand": None}
_AMOUNTS: Final = "name at most 8, with amounts from 0 to 9007199254740991"
_TAINTS: Final = "give at most 16, each key once with one effect, of 1 to 256 characters"
_RULES: Final = "write selectors as for kubectl, name topics that are there, use policy balanced"
_REJECTIONS: Final[Mapping[str, Advice]] = {
    "INVALID_PARTITIONS": _set("partitions", 1, "name 1 to 100,000; of a grow more than there are"),
    "INVALID_REPLICATION_FACTOR": _set("replication_factor", 1, "name 1 to 32"),
    "INVALID_START_INDEX": Advice(_START, "start_index", {"start_index": None, "shift": None}),
    "INVALID_SHIFT": _set("shift", None, "use it only with kafka and a start_index"),
    "INVALID_REPLICAS": Advice("give lists with manual, and only with it", "policy"),
    "INVALID_SPU_ID": _set("spu_id", 0, "name 0 to 2147483647"),
    "INVALID_CORES": _set("cores", 1, "name 1 to 1,024"),
    "INVALID_CAPACITY": _set("capacity", None, "name 0 to 2147483647"),
    "INVALID_RACK": _set("rack", None, "name 1 to 128 characters"),
    "INVALID_MAX_MOVES": _set("max_moves", 0, "name 0 to 2147483647"),
    "INVALID_MAX_BYTES": _set("max_bytes", None, "name 0 to 9007199254740991, or leave it out"),
    "INVALID_BAND_PERCENT": _set("band_percent", None, "name 0 to 1000"),
    "INVALID_BAND": _set("band", None, "name 0 or 1, or leave it out"),
    "INVALID_RESOURCES": _set("resources", None, _AMOUNTS),
    "INVALID_DEMAND": Advice(_AMOUNTS, "demand", _NO_DEMAND),
    "INVALID_TAINTS": _set("taints", (), _TAINTS),
    "INVALID_CONSTRAINTS": _set("constraints", NO_CONSTRAINTS, _RULES),
    "MAP_TOO_LARGE": Advice("ask for fewer partitions or replicas", "partitions"),
    "RESERVED_NAME": Advice("choose another name", "topic", _FREE_NAME),
    "MANUAL_MALFORMED": Advice("use one of the two forms of replica lists", "replicas"),
    "MANUAL_PARTITION_IDS": Advice("number them 0, 1, 2, … in order", "replicas"),
    "MANUAL_EMPTY_LIST": Advice("name at least one SPU, leader first", "replicas"),
    "MANUAL_UNEVEN_LISTS": Advice("make the lists equally long", "replicas"),
    "MANUAL_DUPLICATE_SPU": Advice("name each SPU once", "replicas"),
    "MANUAL_INVALID_SPU": Advice("name an integer from 0 to 2147483647", "replicas"),
    "MANUAL_UNKNOWN_SPU": _later("replicas", "let the SPU join first"),
    "MANUAL_SPU_LEAVING": _later("replicas", "name another SPU"),
    "MANUAL_SPU_FULL": _later("replicas", "name another SPU, or add capacity"),
    "MANUAL_SPU_CORDONED": _later("replicas", "uncordon it first, or name another SPU"),
    "TOPIC_EXISTS": _later("topic", "delete it first, or choose another name", _FREE_NAME),
    "TOPIC_COLLIDES": _later("topic", "choose another name", _FREE_NAME),
    "TOPIC_UNKNOWN": _later("topic", "create it first"),
    "MANUAL_TOPIC": _later("topic", "delete it, and create it with all its lists"),
    "SPU_UNKNOWN": _later("spu_id", "let it join first, or remove this event"),
    "SPU_UNCHANGED": _later("spu_id", "remove this event"),
    "SOURCE_OFFLINE": _later("spu_id", "join it again, or delete the topic"),
    "INSUFFICIENT_SPUS": _later("replication_factor", "add joins before, or fewer replicas"),
    "INSUFFICIENT_CAPACITY": _later("replication_factor", "add SPUs or capacity, or request less"),
    "RACKS_INCOMPLETE": _later("policy", "give all SPUs a rack or none, or set ignore_rack"),
    "UNKNOWN_RESOURCE": _later("demand", "name a resource of the SPUs, or add it", _NO_DEMAND),
    "UNSATISFIABLE": _later("constraints", "relax a rule, or add SPUs that meet it"),
    "TOO_MANY_SPUS": _later("spu_id", "keep to at most 10,000 SPUs"),
    "TOO_MANY_WAITING": _later("on_shortage", "keep to at most 10,000 waiting creates"),
    "TOO_COMPLEX": _later("", "ask for fewer partitions at a time, or simpler constraints"),
    "TOO_MANY_MOVES": _later("", "ask for less at a time, as the message says"),
}
_NO_EVENTS: Final = {
    LineFault.NO_JSON: "write one event a line, as a JSON object in UTF-8",
    LineFault.TOO_LONG: "split it, or name less",
    LineFault.TOO_DEEP: "flatten it",
    LineFault.UNKNOWN_TYPE: "use one of the kinds that the message lists",
    LineFault.ABSENT_FIELD: "add it",
    LineFault.UNKNOWN_FIELD: "remove it, or correct its name",
    LineFault.REPEATED_FIELD: "give it once",
    LineFault.WRONG_VALUE: "correct it",
    LineFault.ILLEGAL_NAME: "use letters, digits, '.', '_' and '-' only, at most 249",
}
WARNINGS: Final = {
    "REPEATED_EVENT": Advice("remove it: it changes nothing and is not answered"),
    "FIELD_LOST": Advice("give it again: a join describes its SPU whole"),
    "RULES_BROKEN": _later("", "move the replicas, or relax the rules"),
    "STILL_WAITING": _later("", "add SPUs or capacity"),
}
ADVICE: Final[Mapping[str, Advice]] = {
    **{fault.name: Advice(fix) for fault, fix in _NO_EVENTS.items()},
    **_REJECTIONS,
    "EVENT_ID_REUSED": Advice("give it an id of its own: an event with a known id is skipped"),
    **WARNINGS,
}
