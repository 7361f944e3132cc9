"""The source documents' own examples, as events with the answers that they must get.

They are in `scenario.yaml`, which says where each is from.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from spu_assigner.core.base.events import BaseTopicEvent, Event, SpuJoined
from spu_assigner.schemas.json_lines.lines import event_from_json


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioStep:
    """One message, and the whole answer that it must get."""

    event_id: str  # of raw bytes too: a name for them
    event: Event | bytes  # bytes: sent as they are, to topic-events, with the cluster as key
    answer: str | None = None  # None: of a join, which shows in the ring
    replicas: list[list[int]] | None = None  # one replica list for each partition
    cores: list[list[int]] | None = None  # parallel to replicas

    @property
    def is_join(self) -> bool:
        return isinstance(self.event, SpuJoined)

    @property
    def topic(self) -> str:
        """The topic that is requested; a name for what requests none."""
        if isinstance(self.event, bytes):
            return "bytes"
        if isinstance(self.event, BaseTopicEvent):
            return self.event.topic
        return self.event.cluster_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One cluster's life."""

    cluster_id: str
    title: str
    source: str
    steps: list[ScenarioStep]  # joins first
    ring: list[int]  # at the end, ascending


def examples(prefix: str = "") -> list[Example]:
    """All examples; ids start with `prefix`, so that they can be played again."""
    text = Path(__file__).with_name("scenario.yaml").read_text("utf-8")
    return [_example(prefix, **given) for given in yaml.safe_load(text)]


def _example(
    prefix: str,
    *,
    joins: list[dict[str, Any]],
    requests: list[dict[str, Any]],
    cluster_id: str,
    **said: Any,
) -> Example:
    cluster_id = prefix + cluster_id
    events = [
        {"event": {"type": "spu_joined", **join, "spu_id": spu_id}}
        for join in joins
        for spu_id in join.pop("spu_ids")
    ]
    steps = []
    for number, step in enumerate([*events, *requests], 1):
        ids = {"cluster_id": cluster_id, "event_id": f"{cluster_id}.{number}"}
        event: Event | bytes
        if "bytes" in step:
            event = step.pop("bytes").encode()
        else:
            event = event_from_json(json.dumps({**step.pop("event"), **ids}))
        steps.append(ScenarioStep(event_id=ids["event_id"], event=event, **step))
    return Example(cluster_id=cluster_id, steps=steps, **said)
