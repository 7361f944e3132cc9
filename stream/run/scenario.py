"""The source documents' own examples, as events with the answers that they must get.

They are in `scenario.yaml`, which says where each is from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import (
    Event,
    SpuJoined,
    TopicCreate,
    TopicDelete,
    TopicGrow,
    TopicRelease,
)
from spu_assigner.core.base.records import RingChange, Status
from spu_assigner.schemas.errors import DeadLetterCode
from spu_assigner.schemas.json_lines.lines import event_from_json

Lists = tuple[tuple[int, ...], ...]  # one replica list for each partition


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioStep:
    """One message, and the whole answer that it must get."""

    event_id: str  # of raw bytes too: a name for them
    event: Event | bytes  # bytes: sent as they are, to topic-events, with the cluster as key
    status: Status | None = None  # None: no request
    code: Code | DeadLetterCode | None = None
    replicas: Lists | None = None  # on replica-map, or in the status of a validated request
    cores: Lists | None = None  # parallel to replicas
    ring: tuple[tuple[int, RingChange], ...] = ()
    leaves_tombstone: bool = False  # on replica-map

    @property
    def is_join(self) -> bool:
        return isinstance(self.event, SpuJoined)

    @property
    def topic(self) -> str:
        """The topic that is asked about; a name for what asks of none."""
        match self.event:
            case bytes():
                return "bytes"
            case TopicCreate() | TopicDelete() | TopicRelease() | TopicGrow():
                return self.event.topic
            case _:
                return self.event.cluster_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One cluster's life."""

    cluster_id: str
    title: str
    source: str
    steps: tuple[ScenarioStep, ...]  # joins first
    ring: tuple[int, ...]  # at the end, ascending


def examples(prefix: str = "") -> tuple[Example, ...]:
    """All examples; ids start with `prefix`, so that they can be played again."""
    text = Path(__file__).with_name("scenario.yaml").read_text("utf-8")
    return tuple(_example(prefix, given) for given in yaml.safe_load(text))


def _example(prefix: str, given: dict[str, Any]) -> Example:
    cluster_id = prefix + given["cluster_id"]
    steps = enumerate([*_joins(given["joins"]), *given["requests"]], 1)
    return Example(
        cluster_id=cluster_id,
        title=given["title"],
        source=given["source"],
        steps=tuple(_step(cluster_id, number, step) for number, step in steps),
        ring=tuple(given["ring"]),
    )


def _joins(joins: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for join in joins:
        for spu_id in join.pop("spu_ids"):
            event = {"type": "spu_joined", "spu_id": spu_id, **join}
            yield {"event": event, "ring": {spu_id: RingChange.JOINED}}


def _step(cluster_id: str, number: int, given: dict[str, Any]) -> ScenarioStep:
    event_id = f"{cluster_id}.{number}"
    status, code, event = given.get("status"), given.get("code"), given.get("event")
    ids = {"event_id": event_id, "cluster_id": cluster_id}
    return ScenarioStep(
        event_id=event_id,
        event=event_from_json(json.dumps(event | ids)) if event else given["bytes"].encode(),
        status=status and Status(status),
        code=code and (Code(code) if event else DeadLetterCode(code)),
        replicas=_lists(given.get("replicas")),
        cores=_lists(given.get("cores")),
        ring=tuple((spu, RingChange(change)) for spu, change in given.get("ring", {}).items()),
        leaves_tombstone=given.get("tombstone", False),
    )


def _lists(rows: list[list[int]] | None) -> Lists | None:
    return None if rows is None else tuple(map(tuple, rows))
