"""Lints one event, on the state that the lines before it have left.

The core decides whether it is rejected. For further faults of a rejected event, the core decides it
again with the first fault fixed. What is legal but probably not intended is found here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from operator import attrgetter
from typing import Any, Final, TypeGuard, get_args

from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import (
    Event,
    Policy,
    SpuCordon,
    SpuDemote,
    SpuId,
    SpuJoined,
    SpuLeft,
    SpuUncordon,
    SpuUndemote,
    TopicAdopted,
    TopicConstraints,
    TopicCreate,
    TopicDelete,
    TopicDemand,
    TopicGrow,
    TopicRelease,
    TopicReplication,
)
from spu_assigner.core.base.limits import MANUAL_MESSAGE_SIZE_MAX, PARTITIONS_MAX, default_capacity
from spu_assigner.core.base.records import SpuChanged
from spu_assigner.core.decision.machine import decide, step
from spu_assigner.core.decision.manual_placement import spu_faults, unknown_spus
from spu_assigner.core.policies.manual_lists import (
    ManualFault,
    entries_of,
    is_spu_id,
    list_faults,
    plain_list_faults,
)
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.schemas.errors import EncodeError
from spu_assigner.schemas.json_lines.json_object import lenient_members
from spu_assigner.stream.client.lint.constraint_checks import contradiction_of, names_unknown_topic
from spu_assigner.stream.client.lint.findings import FindingCollector
from spu_assigner.stream.client.lint.json_positions import Path, Places, field_of
from spu_assigner.stream.client.lint.refusals import (
    FIXES,
    Refusal,
    place_of,
    refusal_of,
    refusal_of_factor,
    refusal_of_grow,
    refusal_of_id,
)
from spu_assigner.stream.client.lint.rules import name_of, rules
from spu_assigner.stream.common.rule_texts import taint_text

# The last of what is refused before.
OF_NAMES: Final = (Code.RESERVED_NAME, Code.TOPIC_EXISTS, Code.TOPIC_COLLIDES)
# Refused unless the SPU is known:
_OF_KNOWN: Final = (SpuLeft, SpuCordon, SpuUncordon, SpuDemote, SpuUndemote)
_UNUSED_ID: Final = "\x00"  # of what is decided and never applied: an id that nobody types
BITS_SENT: Final = 63  # of a time: one with as many may not fit into a message
BITS_MORE: Final = 32  # that it has, beyond any other number


_WITHOUT_HASH: Final = ("labels", "replicas", "resources", "demand", "leader_demand")


def _content_of(kind: type[Event]) -> Callable[[Any], tuple[Any, ...]]:
    """What an event says, in a form that has a hash: all but its id and its time."""
    names = [each.name for each in fields(kind) if each.name not in ("event_id", "occurred_at")]
    plain = attrgetter(*(name for name in names if name not in _WITHOUT_HASH))
    others = [name for name in names if name in _WITHOUT_HASH]
    return lambda event: (plain(event), *(_hashable(getattr(event, name)) for name in others))


def _hashable(value: Any) -> Any:
    return repr(sorted(value.items()) if type(value) is dict else value)


_CONTENT: Final = {kind: _content_of(kind) for kind in get_args(Event)}


@dataclass(slots=True, kw_only=True)
class TopicLine:
    """The last line that requests a topic, or ends it."""

    line: int
    gone_by: str = ""  # "deletes" or "releases": what the line does to it; "" else
    is_refused: bool = False
    is_certain: bool = False  # refused whatever there was before


@dataclass(slots=True)
class Cluster:
    """A cluster of the file: its state, and the lines that led to it."""

    state: ClusterState
    default_policy: Policy
    begins: bool = False  # an SPU joins
    ids: dict[str, tuple[int, int]] = field(default_factory=dict)  # line and content
    topics: dict[str, TopicLine] = field(default_factory=dict)
    joins: dict[int, int] = field(default_factory=dict)  # the last line of each SPU
    names: dict[str, str] = field(default_factory=dict)  # topics by how Kafka distinguishes them


@dataclass(slots=True)
class EventLint:
    """One event in its file."""

    found: FindingCollector
    cluster: Cluster
    event: Event
    _: KW_ONLY
    line: int
    raw: bytes
    _places: Places | None = None

    def lint(self) -> None:
        """Decide and apply it, and report what is wrong with it."""
        event, cluster = self.event, self.cluster
        content = hash((type(event), _CONTENT[type(event)](event)))
        before = cluster.ids.get(event.event_id)
        known = None
        if isinstance(event, SpuJoined):
            known = cluster.state.spus.get(SpuId(event.spu_id))
        records = step(cluster.state, event, default_policy=cluster.default_policy)
        if before is not None:
            self._report_known_id(*before, content=content, is_answered=bool(records))
        if not records:
            return
        cluster.ids[event.event_id] = self.line, content
        refusal = refusal_of(event, records)
        can_be_met = self._report_contradictions(event, refusal)
        is_certain = refusal is not None and self._report_refused(refusal, can_be_met=can_be_met)
        cluster.begins |= isinstance(event, SpuJoined)
        match event:
            case SpuJoined() if refusal is None:
                self._report_lost_fields(event, known)
                cluster.joins[event.spu_id] = self.line
            case TopicCreate() if not event.validate_only:
                self._note_create(event, refusal, is_certain=is_certain)
            case TopicAdopted() if refusal is None:
                topics = self.cluster.topics
                topics[event.topic] = TopicLine(line=self.line)
                self.cluster.names.setdefault(event.topic.replace(".", "_"), event.topic)
            case TopicDelete() | TopicRelease() | TopicGrow() | TopicReplication():
                self._note_later(event)
            case TopicDemand() | TopicConstraints():
                self._note_later(event)
            case _:
                pass
        if refusal is None:
            self._report_unsendable()

    def report(self, rule: str, message: str, name: str, path: Path | None = None) -> None:
        """Note a finding of a field."""
        if self._places is None:
            self._places = Places(self.raw.decode())
        self.found.report(
            rule,
            message,
            line=self.line,
            field=name,
            places=self._places,
            path=(name,) if path is None else path,
            cluster_id=self.event.cluster_id,
        )

    def _report_known_id(self, line: int, other: int, *, content: int, is_answered: bool) -> None:
        if is_answered:
            said = f"line {line} has the same id, which is no longer remembered"
            self.report("event-id-reused-late", said, "event_id")
        elif other == content:
            self.report("repeated-event", f"the same event as on line {line}", "event_id")
        else:
            said = f"line {line} has the same id and other content; this event is skipped"
            self.report("event-id-reused", said, "event_id")

    def _report_contradictions(self, event: Event, refusal: Refusal | None) -> bool:
        """What contradicts itself in constraints; returns whether that is nothing."""
        found = contradiction_of(event, self.cluster.state, refusal)
        if found is not None:
            rule, path, message = found
            self.report(rule, message, field_of(path), path)
        return found is None

    def _report_refused(self, first: Refusal, *, can_be_met: bool) -> bool:
        """Report all that is wrong; returns whether no earlier event could make it acceptable.

        Args:
            can_be_met: whether no contradiction of its constraints was reported.
        """
        event, is_certain = self.event, not can_be_met
        for code, message in self._refusals(first):
            rule = name_of(code)
            if code is Code.UNSATISFIABLE and not can_be_met:
                continue
            if isinstance(event, TopicAdopted) and _is_of_lists(code):
                is_certain |= self._report_adopted_lists(event)
                continue
            if _is_manual(event) and _is_of_lists(code):
                is_certain |= self._report_lists(
                    event.replicas, ManualFault(code=code, message=message)
                )
                continue
            if isinstance(event, TopicGrow) and code is Code.INVALID_PARTITIONS:
                rule = rule if refusal_of_grow(event.partitions) else "not-more"
            if code is Code.INVALID_CONSTRAINTS and names_unknown_topic(
                event, self.cluster.state, self.cluster.default_policy
            ):
                rule = "unknown-constraint-topic"
            is_certain |= not rules()[rule].by_history
            field, path = place_of(code, message)
            self.report(rule, message + self._hint(code), field, path)
            if _is_manual(event) and code in OF_NAMES:  # The core has not read the lists.
                is_certain |= self._report_lists(event.replicas)
            if isinstance(event, TopicAdopted) and code in OF_NAMES:
                is_certain |= self._report_adopted_lists(event)
        return is_certain

    def _refusals(self, first: Refusal) -> Iterator[Refusal]:
        """The first refusal, then those that show when it is fixed."""
        event, cluster = self.event, self.cluster
        asked = replace(event, event_id=_UNUSED_ID)
        tried: Counter[Code] = Counter()
        refusal: Refusal | None = first
        while refusal is not None:
            code = refusal[0]
            known = FIXES.get(code, ())
            own = ({n: v for n, v in each.items() if hasattr(event, n)} for each in known)
            fixes = [each for each in own if each]
            has_lists = isinstance(event, TopicCreate | TopicAdopted)
            if not tried[code] and (refusal is first or fixes or has_lists):
                yield refusal
            if tried[code] == len(fixes):
                break
            asked = replace(asked, **fixes[tried[code]])
            tried[code] += 1
            records = decide(cluster.state, asked, default_policy=cluster.default_policy)
            refusal = refusal_of(asked, records)
        if first[0] is Code.TOPIC_UNKNOWN and isinstance(event, TopicGrow):
            refusal = refusal_of_grow(event.partitions)
        elif first[0] is Code.TOPIC_UNKNOWN and isinstance(event, TopicReplication):
            refusal = refusal_of_factor(event.replication_factor)
        elif first[0] is Code.SPU_UNKNOWN and isinstance(event, _OF_KNOWN):
            refusal = refusal_of_id(event.spu_id)
        else:
            return
        if refusal is not None:
            yield refusal

    def _hint(self, code: Code) -> str:
        """The earlier line that led to a refusal."""
        earlier = self.cluster.topics.get(getattr(self.event, "topic", ""))
        if earlier is None:
            return ""
        if code is Code.TOPIC_EXISTS:
            return f" (line {earlier.line} requests it)"
        if code is Code.TOPIC_UNKNOWN and (earlier.gone_by or earlier.is_refused):
            what = f"{earlier.gone_by} it" if earlier.gone_by else "requests it and is rejected"
            return f" (line {earlier.line} {what})"
        return ""

    def _report_lists(self, raw: Any, first: ManualFault | None = None) -> bool:
        """Every fault of manual lists; returns whether one is of the lists themselves.

        `first` is what the core has said of them.
        """
        prefix = ("replicas", "partitions") if isinstance(raw, dict) else ("replicas",)
        of_lists = of_spus = 0  # Not gathered: there may be millions.
        for fault in list_faults(raw):
            of_lists += 1
            self._report_list(fault, prefix)
        for fault in spu_faults(self.cluster.state, whole_lists(raw)):
            of_spus += 1
            self._report_list(fault, prefix)
        if first is not None and not of_lists and not of_spus:
            self._report_list(first, prefix)
        return of_lists > 0

    def _report_adopted_lists(self, event: TopicAdopted) -> bool:
        """Every fault of the lists of a living topic; whether one is of the lists themselves."""
        of_lists = 0
        for fault in plain_list_faults(event.replicas):
            of_lists += 1
            self._report_list(fault, ("replicas",))
        if len(event.replicas) <= PARTITIONS_MAX:
            for fault in unknown_spus(self.cluster.state, event.replicas):
                self._report_list(fault, ("replicas",))
        return of_lists > 0

    def _report_list(self, fault: ManualFault, prefix: Path) -> None:
        path = (*prefix, *fault.path)
        self.report(name_of(fault.code), fault.message, field_of(path), path)

    def _report_lost_fields(self, event: SpuJoined, known: SpuChanged | None) -> None:
        """What a join takes from an SPU by leaving it out."""
        if known is None:
            return
        is_lost = {
            "rack": known.rack is not None and event.rack is None,
            "cores": known.cores != 1 and event.cores == 1,
            "capacity": known.capacity != default_capacity(known.cores) and event.capacity is None,
            "labels": bool(known.labels) and not event.labels,
            "resources": bool(known.resources) and not event.resources,
            "taints": bool(known.taints) and not event.taints,
        }
        if not any(is_lost.values()):
            return
        given = lenient_members(self.raw)
        line = self.cluster.joins[event.spu_id]
        for name in (name for name, lost in is_lost.items() if lost and name not in given):
            value = getattr(known, name)
            value = dict(value) if name in ("labels", "resources") else value
            value = ", ".join(map(taint_text, value)) if name == "taints" else value
            self.report("field-lost", f"left out, so the {value!r} of line {line} is lost", name)

    def _note_create(
        self, event: TopicCreate, refusal: Refusal | None, *, is_certain: bool
    ) -> None:
        topics, names = self.cluster.topics, self.cluster.names
        before = topics.get(event.topic)
        is_there = refusal is not None and refusal[0] is Code.TOPIC_EXISTS
        if before is None or not (is_certain or is_there):
            topics[event.topic] = TopicLine(
                line=self.line, is_refused=refusal is not None, is_certain=is_certain
            )
        if is_certain:
            return
        if before is not None and not before.gone_by and not before.is_certain:
            said = f"line {before.line} requests {event.topic!r} already"
            self.report("asked-again", said, "topic")
        if refusal is None and event.replicas is not None:
            self._report_unread_counts(event)
        alike = names.setdefault(event.topic.replace(".", "_"), event.topic)
        if alike != event.topic and (refusal is None or refusal[0] not in OF_NAMES):
            said = f"{event.topic!r} and {alike!r} are one name to Kafka, which refuses one"
            self.report("colliding-names", said, "topic")

    def _note_later(
        self,
        event: TopicDelete
        | TopicRelease
        | TopicGrow
        | TopicReplication
        | TopicDemand
        | TopicConstraints,
    ) -> None:
        """What ends a topic, or changes one that is there."""
        topics, names = self.cluster.topics, self.cluster.names
        earlier = topics.get(event.topic)
        if earlier is not None and earlier.gone_by:
            said = f"line {earlier.line} {earlier.gone_by} {event.topic!r}"
            self.report("deleted-before", said, "topic")
        elif isinstance(event, TopicRelease):  # Kafka keeps it, and so its name.
            topics[event.topic] = TopicLine(line=self.line, gone_by="releases")
        elif isinstance(event, TopicDelete):
            topics[event.topic] = TopicLine(line=self.line, gone_by="deletes")
            if names.get(event.topic.replace(".", "_")) == event.topic:
                del names[event.topic.replace(".", "_")]

    def _report_unread_counts(self, event: TopicCreate) -> None:
        entries = entries_of(event.replicas)
        for name, given, listed in (
            ("partitions", event.partitions, len(entries)),
            ("replication_factor", event.replication_factor, len(entries[0]["replicas"])),
        ):
            if given not in (1, listed):  # 1 is what it is when nobody gives it.
                said = f"{name} is {given}; the replica lists make it {listed}"
                self.report("unread-count", said, name)

    def _report_unsendable(self) -> None:
        """What a message cannot hold: numbers that nothing reads, and the largest lists."""
        event = self.event
        numbers = [event.occurred_at or 0]
        if isinstance(event, TopicCreate) and event.replicas is not None:
            numbers += [event.partitions << BITS_MORE, event.replication_factor << BITS_MORE]
        is_large = len(self.raw) > MANUAL_MESSAGE_SIZE_MAX  # JSON is longer than what is sent.
        if is_large or max(number.bit_length() for number in numbers) >= BITS_SENT:
            from spu_assigner.schemas.messages.codec import encode_event

            try:
                encode_event(event)
            except EncodeError as error:
                name = str(error).partition(" ")[0]
                self.report("not-sendable", str(error), name if hasattr(event, name) else "")


def _is_manual(event: Event) -> TypeGuard[TopicCreate]:
    """Whether it is a create that brings its lists."""
    return (
        isinstance(event, TopicCreate)
        and event.replicas is not None
        and event.policy in (None, Policy.MANUAL)
    )


def _is_of_lists(code: Code) -> bool:
    """Whether manual lists can be refused so."""
    counts = (Code.INVALID_PARTITIONS, Code.INVALID_REPLICATION_FACTOR)
    return code.startswith("MANUAL_") or code in counts


def whole_lists(raw: Any) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Those lists whose SPUs can be looked up, with the places of the SPUs."""
    entries = entries_of(raw)
    for partition, entry in enumerate(entries if isinstance(entries, list) else ()):
        replicas = entry.get("replicas") if isinstance(entry, dict) else None
        if isinstance(replicas, list):
            ids = [(place, i) for place, i in enumerate(replicas) if is_spu_id(i)]
            yield partition, ids
