"""A plan as a file: written, read back, and held against what is there now.

A saved plan is applied only if nothing it speaks of has changed but by itself: each topic is as it
was when planned, or as the plan makes it already, so that a run that broke off can be finished by
the same file. Where maps came from Kafka, they must still be those.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.limits import is_legal_name
from spu_assigner.stream.clusters.plan.applied import AppliedRecords
from spu_assigner.stream.clusters.plan.decision import map_digests
from spu_assigner.stream.clusters.plan.model import (
    ChangeKind,
    KafkaCluster,
    Maps,
    Rows,
    TopicChange,
    TopicsPlan,
)
from spu_assigner.stream.clusters.plan.outlook import PlanOutlook
from spu_assigner.stream.clusters.plan.wanted_maps import checked_rows
from spu_assigner.stream.common.plain_file import FileRefusedError, read_plain_file
from spu_assigner.stream.common.printable import printable
from spu_assigner.stream.common.release import RELEASE

FORMAT: Final = 2
SIZE_MAX: Final = 1024 * 1024 * 1024  # a hundred thousand topics of a hundred partitions
CHANGES_REPORTED_MAX: Final = 3


class PlanFileError(AssignerError):
    """A file is no plan, or cannot be written."""


class StalePlanError(AssignerError):
    """Something has changed since the plan was made."""

    def __init__(self, found: list[str]) -> None:
        self.found = found
        more = len(found) - CHANGES_REPORTED_MAX
        text = "; ".join(found[:CHANGES_REPORTED_MAX]) + (f"; {more} more" if more > 0 else "")
        super().__init__(f"not as when it was planned: {text}; nothing was done, plan again")


def plan_json(plan: TopicsPlan, outlook: PlanOutlook | None = None) -> dict[str, Any]:
    """The plan for programs, and for its file, which is read without the outlook."""
    found: dict[str, Any] = _plain(plan)
    maps_from = "kafka" if found.pop("is_live") else "file"
    head = {"format": FORMAT, "product": "spu-assigner", "release": RELEASE}
    document = {**head, **found, "maps_from": maps_from}
    if outlook is not None:
        document |= {
            "unmapped": list(outlook.unmapped),
            "unmatched": list(outlook.unmatched),
            "reassigned": list(outlook.reassigned),
            "out_of_sync": dict(outlook.out_of_sync),
            "unseen": outlook.unseen.as_json(),
            "load": outlook.as_json(),
        }
    return document


def _plain(found: Any) -> Any:
    """What JSON has, of values of the model."""
    if isinstance(found, tuple) and found and is_dataclass(found[0]):
        return [_plain(each) for each in found]
    if isinstance(found, frozenset):
        return sorted(found)
    if not is_dataclass(found):
        return found  # Lists stay as they are: a plan may have millions.
    plain = {each.name: _plain(getattr(found, each.name)) for each in fields(found)}
    if isinstance(found, TopicChange):
        size = plain.pop("size") or {"records": None, "size_bytes": None}
        plain |= {"records": size["records"], "bytes": size["size_bytes"]}
    return plain


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
    """Write a document as a file, whole or not at all.

    Raises:
        PlanFileError: it cannot be written.
    """
    write_whole(path, json.dumps(document, separators=(",", ":")) + "\n")


def write_whole(path: Path, text: str) -> None:
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
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except (OSError, ValueError) as reason:
        if name is not None:
            with suppress(OSError):
                Path(name).unlink()
        cause = getattr(reason, "strerror", None) or str(reason)
        raise PlanFileError(
            f"{str(path)!r} cannot be written: {cause}; name another file"
        ) from None


def read_plan(path: Path) -> TopicsPlan:
    """A plan that `plan --out` wrote.

    Raises:
        PlanFileError: it is none.
    """
    try:
        data = read_plain_file(path, size_max=SIZE_MAX)
    except FileRefusedError as reason:
        raise PlanFileError(
            f"the plan {reason}; expected what `spu-assigner plan --out` writes: check its path"
        ) from reason
    try:
        return _plan_of(json.loads(data))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as reason:
        raise PlanFileError(
            f"{str(path)!r} is no plan of this release ({type(reason).__name__}: "
            f"{printable(str(reason))[:80]}); expected what `spu-assigner plan --out` writes"
        ) from reason


def _plan_of(found: Any) -> TopicsPlan:
    if found["format"] != FORMAT or found["product"] != "spu-assigner":
        raise ValueError("another format")
    is_live = {"kafka": True, "file": False}[found["maps_from"]]
    for change in found["changes"]:
        records = change["records"]
        size = None if records is None else {"records": records, "size_bytes": change["bytes"]}
        change["size"] = size
    plan: TopicsPlan = _read(TopicsPlan, {**found, "is_live": is_live})
    names = [each.topic for each in (*plan.refused, *plan.waiting, *plan.staying)]
    names += [change.topic for change in plan.changes]
    for name in (*names, *plan.deletable, *plan.first_seen, *plan.unchanged, *plan.maps):
        if not is_legal_name(name):
            raise ValueError(f"topic {name!r:.80}")
    for change in plan.changes:
        _require_whole(change)
        if change.topic not in plan.maps:
            raise ValueError(f"no map of {change.topic}")
    return plan


_hints: Final = cache(get_type_hints)


def _read(kind: Any, found: Any) -> Any:
    """A value of a type of the model, out of JSON.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: it is none.
    """
    origin, of = get_origin(kind), get_args(kind)
    if kind == Rows:
        return checked_rows(found) if found != [] else ()
    if origin is UnionType:
        return None if found is None else _read(of[0], found)
    if origin is Mapping:
        return {name: _read(of[1], each) for name, each in found.items()}
    if origin in (tuple, frozenset):
        if type(found) is not list:
            raise TypeError(f"{found!r:.80} for a list")
        return origin(_read(of[0], each) for each in found)
    if isinstance(kind, type) and is_dataclass(kind):
        return kind(**{name: _read(each, found[name]) for name, each in _hints(kind).items()})
    if kind is ChangeKind:
        return ChangeKind(found)
    if type(found) is not kind or (kind is int and found < 0):
        raise TypeError(f"{found!r:.80} for {kind.__name__}")
    return found


def _require_whole(change: TopicChange) -> None:
    """Return if a change can be what its kind says."""
    is_create, is_delete = change.kind is ChangeKind.CREATE, change.kind is ChangeKind.DELETE
    has_lists = bool(change.before) is not is_create and bool(change.after) is not is_delete
    if not has_lists or (change.after and len(change.after) < len(change.before)):
        raise ValueError(f"a {change.kind} that is none")
    if (change.topic_id is None) is not is_create or (change.gone_id and not is_create):
        raise ValueError(f"a {change.kind} of no topic")


def require_fresh(
    plan: TopicsPlan, cluster: KafkaCluster, maps: Maps | None, applied: AppliedRecords
) -> None:
    """Return if the plan still speaks of what is there.

    Args:
        maps: as they are now; None where they came from a file.
        applied: what is recorded now: whose the topics are is asked again.

    Raises:
        StalePlanError: it does not; one line says what has changed.
    """
    found = list(_differences(plan, cluster, applied))
    if maps is not None:
        now = map_digests(maps, plan.maps)
        found += [
            f"the map of topic {topic} has changed"
            for topic, digest in plan.maps.items()
            if now.get(topic) != digest
        ]
        for change in plan.of(ChangeKind.DELETE):
            topic, wanted = change.topic, maps.topics.get(change.topic)
            if wanted is not None and topic in cluster.topics:
                is_made = applied.is_made(topic, change.topic_id, released_at=wanted.released_at)
                found += [f"topic {topic} was released"] * (wanted.is_released or not is_made)
    if found:
        raise StalePlanError(found)


def _differences(plan: TopicsPlan, cluster: KafkaCluster, applied: AppliedRecords) -> Iterator[str]:
    if plan.kafka_id != cluster.kafka_id:
        yield f"it is for Kafka cluster {printable(plan.kafka_id)}, this is {cluster.kafka_id}"
        return
    if plan.brokers != cluster.brokers:
        yield f"brokers were {list(plan.brokers)} and are {list(cluster.brokers)}"
    for change in plan.changes:
        if (difference := _difference(change, cluster, applied)) is not None:
            yield f"topic {change.topic} {difference}"
    for topic, rows in plan.unchanged.items():
        if (difference := _other(rows, rows, cluster.rows(topic))) is not None:
            yield f"topic {topic} {difference}"


def _difference(change: TopicChange, cluster: KafkaCluster, applied: AppliedRecords) -> str | None:
    """How a topic is not as a change expects it; None: it is."""
    topic, rows = change.topic, cluster.rows(change.topic)
    if cluster.reserved(topic) is not None:
        return "is none that may be changed"
    if change.kind is ChangeKind.CREATE:
        if rows is None and applied.gone_id(topic) != change.gone_id:
            return "was in Kafka since and is gone, with its data"
        return None if rows in (None, change.after) else "is there, made otherwise"
    if change.kind is ChangeKind.DELETE and rows is None:
        return None
    if rows is not None and cluster.ids.get(topic) != change.topic_id:
        return "was deleted and made again"
    if change.kind is ChangeKind.CHANGE:
        return _other(change.before, change.after, rows)
    is_made = applied.is_made(topic, change.topic_id)
    return _other(change.before, change.before, rows) if is_made else "was not made by apply"


def _other(before: Rows, after: Rows, rows: Rows | None) -> str | None:
    """How a topic is neither as it was nor as it is to be, nor on the way; None: it is."""
    if rows is None:
        return "is gone"
    if len(rows) not in (len(before), len(after)):
        return f"had {len(before)} partitions and has {len(rows)}"
    for number, row in enumerate(rows):
        target = after[number]
        was = before[number] if number < len(before) else target
        is_on_its_way = set(row) == set(was) | set(target) and row[: len(target)] == target
        if row not in (was, target) and not is_on_its_way:
            return f"had partition {number} on {list(was)} and has it on {list(row)}"
    return None
