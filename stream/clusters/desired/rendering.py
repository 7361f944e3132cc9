"""What `plan --desired` and `apply --desired` print, for people and for programs; the plan's file.

A saved plan keeps the topics that it was made of and the ids of its events. When it is applied,
what is to be sent is decided again from these topics: a part that is done already is left out, and
an event that was not planned is an error.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.events import (
    Event,
    Policy,
    TopicConstraints,
    TopicCreate,
    TopicGrow,
    TopicReplication,
)
from spu_assigner.schemas.errors import DecodeError
from spu_assigner.schemas.json_lines.lines import (
    constraints_from_json,
    constraints_to_json,
    event_to_json,
)
from spu_assigner.stream.clusters.desired.decision import DesiredChanges, DesiredRefusal
from spu_assigner.stream.clusters.desired.model import DesiredTopic
from spu_assigner.stream.common.plain_file import FileRefusedError, read_plain_file
from spu_assigner.stream.common.printable import counted, listed, printable
from spu_assigner.stream.common.release import RELEASE

FORMAT: Final = 1
KIND: Final = "desired-topics"  # distinguishes this plan from one of `plan` without --desired
HEAD_SIZE: Final = 256  # bytes of the file's beginning in which it stands
SIZE_MAX: Final = 256 * 1024 * 1024
NAMES_MAX: Final = 10
_KINDS: Final[Mapping[type[Event], str]] = {
    TopicCreate: "to create",
    TopicGrow: "to grow",
    TopicReplication: "to replicate otherwise",
}


class DesiredPlanError(AssignerError):
    """A saved plan is none, or no longer what is to be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredPlan:
    """Events that make a cluster's topics as a file desires them."""

    cluster_id: str
    topics: tuple[DesiredTopic, ...]  # of the file
    found: DesiredChanges
    events: tuple[Event, ...]  # of `found.changes`, with their ids
    has_seen_kafka: bool  # whether Kafka's topics were looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedDesiredPlan:
    """What a file keeps of a plan."""

    cluster_id: str
    topics: tuple[DesiredTopic, ...]
    event_ids: frozenset[str]


def desired_json(plan: DesiredPlan) -> dict[str, Any]:
    """The plan for programs, and for its file."""
    found = plan.found
    return {
        "format": FORMAT,
        "product": "spu-assigner",
        "kind": KIND,
        "release": RELEASE,
        "cluster_id": plan.cluster_id,
        "events": [json.loads(event_to_json(event)) for event in plan.events],
        "refused": _reasons(found.refused),
        "waiting": _reasons(found.waiting),
        "extra": list(found.extra),
        "unmapped": list(found.unmapped) if plan.has_seen_kafka else None,
        "behind": list(found.behind) if plan.has_seen_kafka else None,
        "configs": [
            {
                "topic": each.topic,
                "setting": each.setting,
                "found": each.found,
                "desired": each.desired,
            }
            for each in found.configs
        ],
        "unchanged": found.unchanged,
        "topics": [_topic_json(topic) for topic in plan.topics],
    }


def _reasons(refusals: Sequence[DesiredRefusal]) -> list[dict[str, str]]:
    return [{"topic": each.topic, "reason": each.reason} for each in refusals]


def _topic_json(topic: DesiredTopic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "policy": None if topic.policy is None else topic.policy.value,
        "config": dict(topic.config),
        "constraints": None
        if topic.constraints is None
        else json.loads(constraints_to_json(topic.constraints)),
    }


def is_desired_plan(path: Path) -> bool:
    """Whether a file begins as `plan --desired --out` writes it; no, if it cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_SIZE)
    except (OSError, ValueError):
        return False  # Whoever reads it says why.
    return f'"kind":"{KIND}"'.encode() in head


def read_desired_plan(path: Path) -> SavedDesiredPlan:
    """A plan that `plan --desired --out` wrote.

    Raises:
        DesiredPlanError: it is none.
    """
    try:
        document = json.loads(read_plain_file(path, size_max=SIZE_MAX))
        if document["format"] != FORMAT or document["product"] != "spu-assigner":
            raise ValueError("another format")
        return SavedDesiredPlan(
            cluster_id=_checked(str, document["cluster_id"]),
            topics=tuple(_topic(each) for each in document["topics"]),
            event_ids=frozenset(_checked(str, each["event_id"]) for each in document["events"]),
        )
    except FileRefusedError as reason:
        raise DesiredPlanError(
            f"the plan {reason}; expected what `spu-assigner plan --desired --out` writes"
        ) from reason
    except (DecodeError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as reason:
        raise DesiredPlanError(
            f"{str(path)!r} is no plan of this release ({type(reason).__name__}: "
            f"{printable(str(reason))[:80]}); expected what `spu-assigner plan --desired --out` "
            "writes"
        ) from reason


def _topic(found: Mapping[str, Any]) -> DesiredTopic:
    policy, rules = found["policy"], found.get("constraints")
    return DesiredTopic(
        name=_checked(str, found["name"]),
        partitions=_checked(int, found["partitions"]),
        replication_factor=_checked(int, found["replication_factor"]),
        policy=None if policy is None else Policy(policy),
        config={_checked(str, key): _checked(str, each) for key, each in found["config"].items()},
        constraints=None if rules is None else constraints_from_json(json.dumps(rules)),
    )


def _checked(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r:.80} for {kind.__name__}")
    return value


def require_planned(plan: DesiredPlan, saved: SavedDesiredPlan) -> None:
    """Return if all that is to be sent now was planned.

    Raises:
        DesiredPlanError: something else is to be sent; one line says of which topics.
    """
    changes = zip(plan.found.changes, plan.events, strict=True)
    others = [each.event.topic for each, event in changes if event.event_id not in saved.event_ids]
    if others:
        raise DesiredPlanError(
            f"not as when it was planned: topics {listed(others)} need something else now; nothing "
            "was sent, plan again"
        )


def desired_lines(plan: DesiredPlan) -> Iterator[str]:
    """A line for each topic that is not as desired, and the sum."""
    found = plan.found
    counts: Counter[type[Event]] = Counter()
    for change in found.changes:
        is_create = isinstance(change.event, TopicCreate)
        counts[type(change.event)] += 1
        yield f"{'+' if is_create else '~'} {change.event.topic}  {change.about}"
    for refused in found.refused:
        yield f"! {refused.topic}  {refused.reason}"
    for waiting in found.waiting:
        yield f"? {waiting.topic}  {waiting.reason}"
    for each in found.configs:
        is_now = "is not set" if each.found is None else f"is {printable(each.found)}"
        yield (
            f"! {each.topic}  {each.setting} {is_now} in Kafka, and the file says "
            f"{printable(each.desired)}; set it with kafka-configs: settings are only compared"
        )
    for name in found.extra[:NAMES_MAX]:
        yield f". {printable(name)}  is in the cluster and not in the file; it stays"
    if (more := len(found.extra) - NAMES_MAX) > 0:
        yield f". {counted(more, 'more topic')} likewise; -o json names all"
    if found.unchanged:
        yield f"= {found.unchanged} topic{'s' if found.unchanged > 1 else ''} as desired"
    parts = [f"{counts[kind]} {what}" for kind, what in _KINDS.items()]
    differing = "setting that differs" if len(found.configs) == 1 else "settings that differ"
    for count, what in (
        (counts[TopicConstraints], "to constrain otherwise"),
        (len(found.refused), "that cannot be as desired"),
        (len(found.waiting), "waiting"),
        (len(found.configs), differing),
        (len(found.extra), "not in the file"),
    ):
        parts += [f"{count} {what}"] if count else []
    yield ("" if found.changes else "nothing to do: ") + ", ".join(parts)
    if found.behind:
        yield (
            f"{counted(len(found.behind), 'topic')} not in Kafka yet, or without all partitions: "
            f"{listed(found.behind, NAMES_MAX)}; `spu-assigner apply --cluster {plan.cluster_id}` "
            "makes them"
        )
    if plan.has_seen_kafka and found.unmapped:
        yield (
            f"{len(found.unmapped)} topic{'s' if len(found.unmapped) > 1 else ''} in Kafka without "
            f"a map and not in the file: {listed(found.unmapped, NAMES_MAX)}"
        )
