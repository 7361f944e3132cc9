"""An oracle and the events said to it, for tests that pin its answers by hand."""

from __future__ import annotations

from itertools import count
from typing import Any

from support.model.oracle import Oracle

Json = dict[str, Any]


class Conversation:
    """Each event said to the oracle has an id of its own: e1, e2, …"""

    def __init__(self, default_policy: str = "fluvio") -> None:
        self.oracle = Oracle(default_policy)
        self._numbers = count(1)

    def say(self, kind: str, **fields: Any) -> list[Json]:
        event = {"type": kind, "event_id": f"e{next(self._numbers)}", "cluster_id": "c1", **fields}
        return self.oracle.apply(event)

    def join(self, *spu_ids: int, **fields: Any) -> list[Json]:
        return [line for i in spu_ids for line in self.say("spu_joined", spu_id=i, **fields)]

    def create(self, topic: str, partitions: int = 1, replicas: int = 1, **fields: Any) -> Json:
        """The map that a create gives, which must be met."""
        lines = self.say(
            "topic_create",
            topic=topic,
            partitions=partitions,
            replication_factor=replicas,
            **fields,
        )
        assert lines[0]["type"] == "replica_map", lines
        return lines[0]

    def refuse(self, topic: str = "t", **fields: Any) -> str:
        """The code of a create that must be refused, and alone."""
        (line,) = self.say("topic_create", topic=topic, **fields)
        assert line["status"] == "rejected"
        code: str = line["code"]
        return code


def changes(lines: list[Json]) -> list[tuple[int, str, int]]:
    """(SPU, change, ring size) of each ring event."""
    return [
        (line["spu_id"], line["change"], line["ring_size"])
        for line in lines
        if line["type"] == "ring_event"
    ]
