"""What each code of `simulate --check` is about, and how to fix it.

The code of a rejection is the core's, that of a line that makes no event its `LineFault`. Both are
errors; the codes of `WARNINGS` are of what is accepted and probably not intended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from spu_assigner.core.base.constraints import NO_CONSTRAINTS
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.limits import NAME_LENGTH_MAX
from spu_assigner.schemas.errors import LineFault

Values = Mapping[str, Any]

_FREE_NAME: Final[Sequence[Values]] = ({"topic": "-" * NAME_LENGTH_MAX},)
_NO_DEMAND: Final[Sequence[Values]] = ({"demand": {}, "leader_demand": None},)
_NO_RULES: Final[Sequence[Values]] = ({"constraints": NO_CONSTRAINTS},)


class Advice(NamedTuple):
    """How to fix a fault."""

    fix: str
    field: str = ""
    """What a rejection is about; empty: its message says so, or it is the event as a whole."""
    legal: Sequence[Values] = ()
    """With these values, one after the other, the event is decided again, to find more faults."""
    is_by_history: bool = False
    """Whether it depends on the SPUs and topics that were there before."""


def _set(field: str, *legal: Any, fix: str) -> Advice:
    return Advice(fix, field, [{field: value} for value in legal])


def _later(field: str, fix: str, legal: Sequence[Values] = ()) -> Advice:
    return Advice(fix, field, legal, is_by_history=True)


_AMOUNTS: Final = "name at most 8, with amounts from 0 to 9007199254740991"
_REJECTIONS: Final = {
    Code.INVALID_PARTITIONS: _set(
        "partitions", 1, fix="name 1 to 100,000; of a grow more than there are"
    ),
    Code.INVALID_REPLICATION_FACTOR: _set("replication_factor", 1, fix="name 1 to 32"),
    Code.INVALID_START_INDEX: _set(
        "start_index", 0, None, fix="name 0 to 2147483647, with fluvio and kafka only"
    ),
    Code.INVALID_SHIFT: _set("shift", None, fix="use it only with kafka and a start_index"),
    Code.INVALID_REPLICAS: Advice("give lists with manual, and only with it", "policy"),
    Code.INVALID_SPU_ID: _set("spu_id", 0, fix="name 0 to 2147483647"),
    Code.INVALID_CORES: _set("cores", 1, fix="name 1 to 1,024"),
    Code.INVALID_CAPACITY: _set("capacity", None, fix="name 0 to 2147483647"),
    Code.INVALID_RACK: _set("rack", None, fix="name 1 to 128 characters"),
    Code.INVALID_MAX_MOVES: _set("max_moves", 0, fix="name 0 to 2147483647"),
    Code.INVALID_MAX_BYTES: _set(
        "max_bytes", None, fix="name 0 to 9007199254740991, or leave it out"
    ),
    Code.INVALID_BAND_PERCENT: _set("band_percent", None, fix="name 0 to 1000"),
    Code.INVALID_BAND: _set("band", None, fix="name 0 or 1, or leave it out"),
    Code.INVALID_RESOURCES: _set("resources", None, fix=_AMOUNTS),
    Code.INVALID_DEMAND: Advice(_AMOUNTS, "demand", _NO_DEMAND),
    Code.INVALID_TAINTS: _set(
        "taints", (), fix="give at most 16, each key once with one effect, of 1 to 256 characters"
    ),
    Code.INVALID_CONSTRAINTS: Advice(
        "write selectors as for kubectl; name topics that are there; use the policy balanced",
        "constraints",
        _NO_RULES,
    ),
    Code.MAP_TOO_LARGE: Advice("ask for fewer partitions or replicas", "partitions"),
    Code.RESERVED_NAME: Advice("choose another name", "topic", _FREE_NAME),
    Code.MANUAL_MALFORMED: Advice("use one of the two forms of replica lists", "replicas"),
    Code.MANUAL_PARTITION_IDS: Advice("number them 0, 1, 2, … in order", "replicas"),
    Code.MANUAL_EMPTY_LIST: Advice("name at least one SPU, leader first", "replicas"),
    Code.MANUAL_UNEVEN_LISTS: Advice("make the lists equally long", "replicas"),
    Code.MANUAL_DUPLICATE_SPU: Advice("name each SPU once", "replicas"),
    Code.MANUAL_INVALID_SPU: Advice("name an integer from 0 to 2147483647", "replicas"),
    Code.MANUAL_UNKNOWN_SPU: _later("replicas", "let the SPU join first"),
    Code.MANUAL_SPU_LEAVING: _later("replicas", "name another SPU"),
    Code.MANUAL_SPU_FULL: _later("replicas", "name another SPU, or add capacity"),
    Code.MANUAL_SPU_CORDONED: _later("replicas", "uncordon it first, or name another SPU"),
    Code.TOPIC_EXISTS: _later("topic", "delete it first, or choose another name", _FREE_NAME),
    Code.TOPIC_COLLIDES: _later("topic", "choose another name", _FREE_NAME),
    Code.TOPIC_UNKNOWN: _later("topic", "create it first"),
    Code.MANUAL_TOPIC: _later("topic", "delete it, and create it with all its lists"),
    Code.SPU_UNKNOWN: _later("spu_id", "let it join first, or remove this event"),
    Code.SPU_UNCHANGED: _later("spu_id", "remove this event"),
    Code.SOURCE_OFFLINE: _later(
        "spu_id", "join it again and decommission it then, or delete the topic"
    ),
    Code.INSUFFICIENT_SPUS: _later(
        "replication_factor", "add joins before, or request fewer replicas"
    ),
    Code.INSUFFICIENT_CAPACITY: _later(
        "replication_factor", "add SPUs or capacity, or request less"
    ),
    Code.RACKS_INCOMPLETE: _later("policy", "give all SPUs a rack or none, or set ignore_rack"),
    Code.UNKNOWN_RESOURCE: _later(
        "demand", "name a resource of the SPUs, or add it to their joins", _NO_DEMAND
    ),
    Code.UNSATISFIABLE: _later(
        "constraints", "relax one of the rules that are named, or add SPUs that meet them"
    ),
    Code.TOO_MANY_SPUS: _later("spu_id", "keep to at most 10,000 SPUs"),
    Code.TOO_MANY_WAITING: _later("on_shortage", "keep to at most 10,000 waiting creates"),
    Code.TOO_COMPLEX: _later("", "ask for fewer partitions at a time, or simpler constraints"),
    Code.TOO_MANY_MOVES: _later("", "ask for less at a time, as the message says"),
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
    "EVENT_ID_REUSED_LATE": Advice("give it an id of its own"),
    "FIELD_LOST": Advice("give it again: a join describes its SPU whole"),
    "UNREAD_COUNT": Advice("remove it: the replica lists say it"),
    "COLLIDING_NAMES": Advice("rename one: Kafka refuses the second"),
    "RACKS_ON_SOME": Advice("give all SPUs a rack, or none"),
    "RULES_BROKEN": _later("", "move the replicas, or relax the rules"),
    "STILL_WAITING": _later("", "add SPUs or capacity"),
}
ADVICE: Final[Mapping[str, Advice]] = {
    **{fault.name: Advice(fix) for fault, fix in _NO_EVENTS.items()},
    **{code.value: advice for code, advice in _REJECTIONS.items()},
    "EVENT_ID_REUSED": Advice("give it an id of its own: an event with a known id is skipped"),
    **WARNINGS,
}
