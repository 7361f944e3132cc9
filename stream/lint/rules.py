"""What `spu-assigner lint` finds: each kind with a code that stays, and how it is told.

An error will be refused or cannot be read; a warning is taken, and probably not meant. The codes of
refusals are the core's own, numbered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from spu_assigner.core.base.errors import Code
from spu_assigner.schemas.errors import LineFault
from spu_assigner.stream.common.printable import printable


@dataclass(frozen=True, slots=True, kw_only=True)
class LintRule:
    """One kind of fault."""

    code: str  # E… an error, W… a warning
    name: str
    about: str  # what is found
    fix: str  # what to do
    by_history: bool = False  # depends on SPUs and topics that there were before
    in_part: bool = False  # told of clusters whose beginning is not in the file, and only of them

    @property
    def is_error(self) -> bool:
        """Whether it will be refused, or cannot be read."""
        return self.code.startswith("E")


@dataclass(frozen=True, slots=True, kw_only=True)
class LintFinding:
    """One fault, where it is."""

    file: str
    line: int
    column: int | None  # None: the line as a whole
    rule: LintRule
    field: str  # as in `replicas[3].id`; empty: the line as a whole
    message: str  # what was found and what was expected
    cluster_id: str | None = None

    def line_of_text(self) -> str:
        """For people, as compilers write it."""
        place = f"{self.file}:{self.line}:" + ("" if self.column is None else f"{self.column}:")
        field = f" {self.field}:" if self.field else ""
        return printable(f"{place} {self.rule.code}{field} {self.message}")

    def as_json(self) -> dict[str, object]:
        """For programs."""
        return {
            "type": "fault",
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "code": self.rule.code,
            "name": self.rule.name,
            "severity": "error" if self.rule.is_error else "warning",
            "cluster_id": self.cluster_id,
            "field": self.field or None,
            "message": self.message,
            "mend": self.rule.fix,
        }


_OF_LINES: Final[dict[LineFault, LintRule]] = {}
_OF_REFUSALS: Final[dict[Code, LintRule]] = {}
_BY_CODE: Final[dict[str, LintRule]] = {}


def _rule(code: str, name: str, about: str, fix: str, **given: bool) -> LintRule:
    rule = _BY_CODE[code] = LintRule(code=code, name=name, about=about, fix=fix, **given)
    return rule


def _line(code: str, fault: LineFault, about: str, fix: str) -> None:
    _OF_LINES[fault] = _rule(code, fault.value.replace("_", "-"), about, fix)


def _refusal(code: str, refusal: Code, about: str, fix: str, **given: bool) -> None:
    name = refusal.value.lower().replace("_", "-")
    _OF_REFUSALS[refusal] = _rule(code, name, about, fix, **given)


def of_line(fault: LineFault) -> LintRule:
    """The rule of a line that makes no event."""
    return _OF_LINES[fault]


def of_refusal(code: Code) -> LintRule:
    """The rule of an event that the core refuses."""
    return _OF_REFUSALS[code]


def rule_of(code: str) -> LintRule | None:
    """The rule with this code or name; None: there is none."""
    if code.upper() in _BY_CODE:
        return _BY_CODE[code.upper()]
    return next((rule for rule in _BY_CODE.values() if rule.name == code.lower()), None)


def describe() -> str:
    """The table of all rules for docs/lint.md."""
    rows = [f"| {rule.code} | {rule.name} | {rule.about} |" for rule in _BY_CODE.values()]
    return "\n".join(["| code | name | what is found |", "| --- | --- | --- |", *rows])


_line("E101", LineFault.NO_JSON, "no JSON in UTF-8, or no object", "one event a line, as JSON")
_line("E102", LineFault.TOO_LONG, "a line or file over its limit", "split it, or name less")
_line("E103", LineFault.TOO_DEEP, "lists within lists within lists", "flatten it")
_line("E104", LineFault.UNKNOWN_TYPE, "`type` is no kind of event", "one of the seven kinds")
_line("E105", LineFault.ABSENT_FIELD, "a field is absent that its kind needs", "add it")
_line("E106", LineFault.UNKNOWN_FIELD, "a field that its kind does not have", "drop or respell it")
_line("E107", LineFault.REPEATED_FIELD, "a field is given twice", "give it once")
_line("E108", LineFault.WRONG_VALUE, "a value of a wrong type, or none of the words", "mend it")
_line(
    "E109", LineFault.ILLEGAL_NAME, "a cluster, topic or event id that none may have", "rename it"
)

_refusal(
    "E201",
    Code.INVALID_PARTITIONS,
    "`partitions` is out of its limits",
    "name 1 to 100,000; of a grow more than there are",
)
_refusal("E202", Code.INVALID_REPLICATION_FACTOR, "as many replicas as none may have", "1 to 32")
_refusal(
    "E203",
    Code.INVALID_START_INDEX,
    "`start_index` out of its limits, or with a policy that has none",
    "it is for fluvio and kafka alone",
)
_refusal(
    "E204",
    Code.INVALID_SHIFT,
    "`shift` out of its limits, or with nothing to shift",
    "it is for kafka with a start_index alone",
)
_refusal(
    "E205",
    Code.INVALID_REPLICAS,
    "replica lists with a policy other than `manual`, or `manual` without any",
    "lists with manual, and only with it",
)
_refusal("E206", Code.INVALID_SPU_ID, "`spu_id` is out of its limits", "name 0 to 2147483647")
_refusal("E207", Code.INVALID_CORES, "`cores` is out of its limits", "name 1 to 1,024")
_refusal("E208", Code.INVALID_CAPACITY, "`capacity` is out of its limits", "0 to 2147483647")
_refusal("E209", Code.INVALID_RACK, "a rack's name is empty or too long", "1 to 128 characters")
_refusal("E210", Code.INVALID_MAX_MOVES, "`max_moves` is out of its limits", "0 to 2147483647")
_refusal("E211", Code.MAP_TOO_LARGE, "a map larger than a message", "ask for less")
_refusal("E212", Code.NOT_SUPPORTED, "what release 0.1 did not do", "update the job")
_refusal(
    "E213",
    Code.RESERVED_NAME,
    "a topic is asked for by a name of Kafka's own topics, or of the assigner's",
    "choose another name",
)

_refusal("E301", Code.MANUAL_MALFORMED, "replica lists in neither form", "one of the two forms")
_refusal(
    "E302", Code.MANUAL_PARTITION_IDS, "partition ids not 0, 1, 2, … in order", "number them so"
)
_refusal("E303", Code.MANUAL_EMPTY_LIST, "a list without SPUs", "name at least one, leader first")
_refusal("E304", Code.MANUAL_UNEVEN_LISTS, "lists of different length", "make them equally long")
_refusal("E305", Code.MANUAL_DUPLICATE_SPU, "an SPU twice in one list", "name each once")
_refusal("E306", Code.MANUAL_INVALID_SPU, "an id that no SPU can have", "an integer from 0 on")
_refusal(
    "E307",
    Code.MANUAL_UNKNOWN_SPU,
    "a list names an SPU that has not joined",
    "let it join first",
    by_history=True,
)
_refusal(
    "E308",
    Code.MANUAL_SPU_LEAVING,
    "a list names an SPU that is being decommissioned",
    "name another",
    by_history=True,
)
_refusal(
    "E309",
    Code.MANUAL_SPU_FULL,
    "a list names an SPU without a free slot",
    "name another",
    by_history=True,
)

_refusal(
    "E401",
    Code.TOPIC_EXISTS,
    "a topic is asked for that is there, or waits",
    "delete it first, or choose another name",
    by_history=True,
)
_refusal(
    "E402",
    Code.TOPIC_UNKNOWN,
    "a topic is deleted, released or grown that is not there",
    "create it first",
    by_history=True,
)
_refusal(
    "E403",
    Code.MANUAL_TOPIC,
    "a topic is grown that was placed by hand",
    "create it anew with all its lists",
    by_history=True,
)
_refusal(
    "E404",
    Code.SPU_UNKNOWN,
    "an SPU leaves that is not there",
    "let it join first, or drop this",
    by_history=True,
)
_refusal(
    "E405",
    Code.INSUFFICIENT_SPUS,
    "more replicas than the ring has SPUs",
    "more joins before, or fewer replicas",
    by_history=True,
)
_refusal(
    "E406",
    Code.INSUFFICIENT_CAPACITY,
    "too few SPUs have a free slot",
    "more SPUs or capacity, or ask for less",
    by_history=True,
)
_refusal(
    "E407",
    Code.RACKS_INCOMPLETE,
    "`fluvio` or `kafka` where some SPUs have a rack and some none",
    "label all or none, or set ignore_rack",
    by_history=True,
)
_refusal(
    "E408",
    Code.TOO_MANY_SPUS,
    "more SPUs than a cluster may have",
    "at most 10,000",
    by_history=True,
)
_refusal(
    "E409", Code.TOO_MANY_WAITING, "more creates wait than may", "at most 10,000", by_history=True
)

NOT_MORE: Final = _rule(
    "E411",
    "not-more",
    "a grow to no more partitions than there are",
    "name the new total",
    by_history=True,
)

ID_REUSED: Final = _rule(
    "E410",
    "event-id-reused",
    "an event id that was used before, with other content: the event "
    "would be passed over without an answer",
    "give it an id of its own",
)

REPEATED_EVENT: Final = _rule(
    "W501",
    "repeated-event",
    "the same event again: it changes nothing and is not answered",
    "drop it",
)
ID_REUSED_LATE: Final = _rule(
    "W502",
    "event-id-reused-late",
    "an event id that was used so long ago that it is forgotten",
    "give it an id of its own",
)
SOME_RACKS: Final = _rule(
    "W503",
    "racks-on-some",
    "some SPUs of a cluster have a rack and some have none",
    "give all a rack, or none",
)
STILL_WAITING: Final = _rule(
    "W504",
    "still-waiting",
    "a create still waits when the file ends",
    "more SPUs or capacity",
    by_history=True,
)
STILL_SHORT: Final = _rule(
    "W505",
    "still-short",
    "what a decommission took from a list is not replaced when the file ends",
    "more SPUs or capacity, or decommission later",
    by_history=True,
)
FIELD_LOST: Final = _rule(
    "W506",
    "field-lost",
    "a join of a known SPU leaves out what an earlier one gave, which is lost",
    "a join describes the SPU whole: give it again, or null",
)
UNREAD_COUNT: Final = _rule(
    "W507",
    "unread-count",
    "`partitions` or `replication_factor` beside replica lists that say otherwise: it is not read",
    "drop it",
)
COLLIDING_NAMES: Final = _rule(
    "W508",
    "colliding-names",
    "two topics whose names differ in `.` and `_` alone: Kafka takes one of them",
    "rename one",
)
ASKED_AGAIN: Final = _rule(
    "W509",
    "asked-again",
    "a topic is asked for that an earlier line asks for",
    "delete it first, or choose another name",
    in_part=True,
)
DELETED_BEFORE: Final = _rule(
    "W510",
    "deleted-before",
    "a topic is deleted, released or grown that an earlier line deletes or releases",
    "create it first, or drop this",
    in_part=True,
)
NOT_SENDABLE: Final = _rule(
    "W511",
    "not-sendable",
    "an event that `simulate` takes and `produce` cannot send",
    "keep to what a message can hold",
)
NO_EVENTS: Final = _rule(
    "W512", "no-events", "a file without an event", "look what should be in it"
)
LINKED_FILE: Final = _rule(
    "W513",
    "linked-file",
    "replica lists behind a symbolic link, which `produce` does not follow",
    "name the file itself",
)
SPU_NOT_JOINED: Final = _rule(
    "W514",
    "spu-not-joined",
    "a file of replica lists names an SPU that joins in none of the event files beside it",
    "let it join, or name another",
)
