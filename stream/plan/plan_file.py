"""A plan as a file: written, read back, and held against what is there now.

A saved plan is applied only if nothing it speaks of has changed but by itself: each topic is as it
was when planned, or as the plan makes it already, so that a run that broke off can be finished by
the same file. Where maps came from Kafka, they must still be those.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.limits import is_legal_name
from spu_assigner.stream.common.plain_file import FileRefusedError, read_plain_file
from spu_assigner.stream.common.printable import printable
from spu_assigner.stream.common.release import RELEASE
from spu_assigner.stream.plan.applied import AppliedRecords
from spu_assigner.stream.plan.model import (
    ChangeKind,
    KafkaCluster,
    Maps,
    Rows,
    TopicChange,
    TopicReason,
    TopicSize,
    TopicsPlan,
    reserved,
    row_text,
)
from spu_assigner.stream.plan.wanted_maps import checked_rows

FORMAT: Final = 2  # 1: of 0.3.0, which recorded nothing of topics
SIZE_MAX: Final = 1024 * 1024 * 1024  # a hundred thousand topics of a hundred partitions
CHANGES_REPORTED_MAX: Final = 3
AGAIN: Final = "plan again"


class PlanFileError(AssignerError):
    """A file is no plan, or cannot be written."""


class StalePlanError(AssignerError):
    """Something has changed since the plan was made."""

    def __init__(self, found: list[str]) -> None:
        self.found = found
        more = len(found) - CHANGES_REPORTED_MAX
        told = "; ".join(found[:CHANGES_REPORTED_MAX]) + (f"; {more} more" if more > 0 else "")
        super().__init__(f"not as when it was planned: {told}; nothing was done, {AGAIN}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlan:
    """A plan, and the maps that it was made of."""

    plan: TopicsPlan
    is_live: bool  # the maps are the job's, in Kafka, and can be looked at again
    prints: Mapping[str, str]  # fingerprints of the maps, by topic


def saved(plan: TopicsPlan, maps: Maps, *, is_live: bool) -> SavedPlan:
    """A plan as it is kept."""
    topics = {*plan.unchanged, *(change.topic for change in plan.changes)}
    return SavedPlan(plan=plan, is_live=is_live, prints=_prints(maps, topics))


def plan_json(kept: SavedPlan) -> dict[str, Any]:
    """The plan for programs, and for its file."""
    plan = kept.plan
    return {
        "format": FORMAT,
        "product": "spu-assigner",
        "release": RELEASE,
        "cluster_id": plan.cluster_id,
        "kafka_id": plan.kafka_id,
        "brokers": list(plan.brokers),
        "maps_from": "kafka" if kept.is_live else "file",
        "changes": [
            {
                "topic": change.topic,
                "kind": change.kind.value,
                "before": change.before,
                "after": change.after,
                "moving": sorted(change.moving),
                "topic_id": change.topic_id,
                "gone_id": change.gone_id,
                "records": None if change.size is None else change.size.records,
                "bytes": None if change.size is None else change.size.size_bytes,
            }
            for change in plan.changes
        ],
        "refused": [{"topic": told.topic, "reason": told.reason} for told in plan.refused],
        "waiting": [{"topic": told.topic, "reason": told.reason} for told in plan.waiting],
        "deletable": list(plan.deletable),
        "staying": [{"topic": told.topic, "reason": told.reason} for told in plan.staying],
        "first_seen": list(plan.first_seen),
        "unchanged": dict(plan.unchanged),
        "recreate": plan.recreate,
        "maps": dict(kept.prints),
    }


def reassignment_json(plan: TopicsPlan) -> dict[str, Any]:
    """What `kafka-reassign-partitions --reassignment-json-file` takes."""
    return {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": number, "replicas": list(after)}
            for topic, moves in plan.moves.items()
            for number, (_, after) in moves.items()
        ],
    }


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a file whole or not at all.

    Raises:
        PlanFileError: it cannot be written.
    """
    name = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            name = file.name
            file.write(json.dumps(document, separators=(",", ":")) + "\n")
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except (OSError, ValueError) as reason:
        if name is not None:
            with suppress(OSError):
                Path(name).unlink()
        told = getattr(reason, "strerror", None) or str(reason)
        raise PlanFileError(f"{str(path)!r} cannot be written: {told}; name another file") from None


def read_plan(path: Path) -> SavedPlan:
    """A plan that `plan --out` wrote.

    Raises:
        PlanFileError: it is none.
    """
    try:
        data = read_plain_file(path, size_max=SIZE_MAX)
    except FileRefusedError as reason:
        raise PlanFileError(f"the plan {reason}") from reason
    try:
        return _plan_of(json.loads(data))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as reason:
        raise PlanFileError(
            f"{str(path)!r} is no plan of this release ({type(reason).__name__}: "
            f"{printable(str(reason))[:80]}); expected what `spu-assigner plan --out` writes"
        ) from reason


def _plan_of(found: Any) -> SavedPlan:
    if found["format"] != FORMAT or found["product"] != "spu-assigner":
        raise ValueError("another format")
    plan = TopicsPlan(
        cluster_id=_text(found["cluster_id"]),
        kafka_id=_text(found["kafka_id"]),
        brokers=tuple(map(_number, found["brokers"])),
        changes=tuple(map(_change, found["changes"])),
        refused=tuple(map(_topic_reason, found["refused"])),
        waiting=tuple(map(_topic_reason, found["waiting"])),
        deletable=tuple(map(_topic, found["deletable"])),
        staying=tuple(map(_topic_reason, found["staying"])),
        first_seen=tuple(map(_topic, found["first_seen"])),
        unchanged={_topic(name): _rows(rows) for name, rows in found["unchanged"].items()},
        recreate=_flag(found["recreate"]),
    )
    prints = {_topic(name): _text(digest) for name, digest in found["maps"].items()}
    for change in plan.changes:
        if change.topic not in prints:
            raise ValueError(f"no map of {change.topic}")
    is_live = {"kafka": True, "file": False}[_text(found["maps_from"])]
    return SavedPlan(plan=plan, is_live=is_live, prints=prints)


def _change(found: Any) -> TopicChange:
    kind = ChangeKind(found["kind"])
    before, after = _rows(found["before"]), _rows(found["after"])
    has_both = bool(before) is (kind is not ChangeKind.CREATE) and bool(after) is (
        kind is not ChangeKind.DELETE
    )
    if not has_both or (after and len(after) < len(before)):
        raise ValueError(f"a {kind} that is none")
    topic_id, gone_id = found["topic_id"], found["gone_id"]
    if (topic_id is None) is not (kind is ChangeKind.CREATE) or (
        gone_id and kind is not ChangeKind.CREATE
    ):
        raise ValueError(f"a {kind} of no topic")
    return TopicChange(
        topic=_topic(found["topic"]),
        kind=kind,
        before=before,
        after=after,
        moving=frozenset(map(_number, found["moving"])),
        topic_id=None if topic_id is None else _text(topic_id),
        gone_id=None if gone_id is None else _text(gone_id),
        size=_size(found["records"], found["bytes"]),
    )


def _rows(found: Any) -> Rows:
    return checked_rows(found) if found != [] else ()


def _size(records: Any, size_bytes: Any) -> TopicSize | None:
    if records is None:
        return None
    known = None if size_bytes is None else _number(size_bytes)
    return TopicSize(records=_number(records), size_bytes=known)


def _topic_reason(found: Any) -> TopicReason:
    return TopicReason(topic=_topic(found["topic"]), reason=_text(found["reason"]))


def _topic(found: Any) -> str:
    if not isinstance(found, str) or not is_legal_name(found):
        raise ValueError(f"topic {found!r:.80}")
    return found


def _text(found: Any) -> str:
    if not isinstance(found, str):
        raise TypeError(f"{found!r:.80} for a text")
    return found


def _flag(found: Any) -> bool:
    if not isinstance(found, bool):
        raise TypeError(f"{found!r:.80} for a flag")
    return found


def _number(found: Any) -> int:
    if type(found) is not int or found < 0:
        raise TypeError(f"{found!r:.80} for a number")
    return found


def require_fresh(
    kept: SavedPlan, cluster: KafkaCluster, maps: Maps | None, applied: AppliedRecords
) -> None:
    """Return if the plan still speaks of what is there.

    Args:
        maps: as they are now; None where they came from a file.
        applied: what is recorded now: whose the topics are is asked again.

    Raises:
        StalePlanError: it does not; one line says what has changed.
    """
    found = list(_differences(kept.plan, cluster, applied))
    if maps is not None:
        now = _prints(maps, kept.prints)
        found += [
            f"the map of topic {topic} has changed"
            for topic, digest in kept.prints.items()
            if now.get(topic) != digest
        ]
        found += [
            f"topic {change.topic} was released"
            for change in kept.plan.of(ChangeKind.DELETE)
            if (wanted := maps.topics.get(change.topic)) is not None
            and change.topic in cluster.topics
            and (
                wanted.is_released
                or not applied.is_made(
                    change.topic, change.topic_id, released_at=wanted.released_at
                )
            )
        ]
    if found:
        raise StalePlanError(found)


def _differences(plan: TopicsPlan, cluster: KafkaCluster, applied: AppliedRecords) -> Iterator[str]:
    if plan.kafka_id != cluster.kafka_id:
        yield f"it is for Kafka cluster {printable(plan.kafka_id)}, this is {cluster.kafka_id}"
        return
    if plan.brokers != cluster.brokers:
        yield f"brokers were {row_text(plan.brokers)} and are {row_text(cluster.brokers)}"
    for change in plan.changes:
        if reserved(change.topic, cluster) is not None:
            yield f"topic {change.topic} is none that may be changed"
        elif (told := _difference(change, cluster, applied)) is not None:
            yield f"topic {change.topic} {told}"
    for topic, rows in plan.unchanged.items():
        if (told := _other(rows, rows, cluster.rows(topic))) is not None:
            yield f"topic {topic} {told}"


def _difference(change: TopicChange, cluster: KafkaCluster, applied: AppliedRecords) -> str | None:
    rows = cluster.rows(change.topic)
    if change.kind is ChangeKind.CREATE:
        if rows is None and applied.gone_id(change.topic) != change.gone_id:
            return "was in Kafka since and is gone, with its data"
        return None if rows in (None, change.after) else "is there, made otherwise"
    if change.kind is ChangeKind.DELETE and rows is None:
        return None
    if rows is not None and cluster.ids.get(change.topic) != change.topic_id:
        return "was deleted and made again"
    if change.kind is ChangeKind.DELETE and not applied.is_made(change.topic, change.topic_id):
        return "was not made by apply"
    after = change.before if change.kind is ChangeKind.DELETE else change.after
    return _other(change.before, after, rows)


def _other(before: Rows, after: Rows, rows: Rows | None) -> str | None:
    """How a topic is neither as it was nor as it is to be, nor on the way; None: it is."""
    if rows is None:
        return "is gone"
    if len(rows) not in (len(before), len(after)):
        return f"had {len(before)} partitions and has {len(rows)}"
    for number, row in enumerate(rows):
        was = before[number] if number < len(before) else after[number]
        target = after[number]
        is_on_its_way = set(row) == set(was) | set(target) and row[: len(target)] == target
        if row not in (was, target) and not is_on_its_way:
            return f"had partition {number} on {row_text(was)} and has it on {row_text(row)}"
    return None


def _prints(maps: Maps, topics: Mapping[str, str] | set[str]) -> dict[str, str]:
    """Fingerprints of the maps of these topics, in order."""
    return {
        topic: hashlib.sha256(repr(wanted.replicas).encode()).hexdigest()[:16]
        for topic, wanted in sorted(maps.topics.items())
        if topic in topics
    }
