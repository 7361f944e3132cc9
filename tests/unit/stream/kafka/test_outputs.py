"""What is read of a cluster's outputs for `explain`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

import pytest
from spu_assigner.schemas.messages.codec import encode_record
from spu_assigner.stream.config.connection import Connection
from spu_assigner.stream.kafka import outputs
from support.events.samples import RING

CONNECTION = Connection(bootstrap_servers="127.0.0.1:9092", prefix="p-")


class RingMessage:
    """A message of `ring-events`."""

    def __init__(self, value: bytes) -> None:
        self._value = value

    def key(self) -> bytes:
        return b"c1"

    def value(self) -> bytes:
        return self._value

    def headers(self) -> list[tuple[str, bytes]]:
        return []


class RingReader:
    """Gives two ring events, one of a resource, as `Reader` does."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def drain_messages(self) -> Iterator[tuple[str, Any]]:
        for record in (replace(RING, resource="disk_bytes", cause="e1"), replace(RING, cause="e2")):
            yield "ring-events", RingMessage(encode_record(record))

    def spans(self) -> dict[tuple[str, int], tuple[int, int]]:
        return {}


def test_an_spu_that_has_used_up_a_resource_stays_in_the_ring(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only what changes the ring counts for the ring as it was."""
    monkeypatch.setattr(outputs, "Reader", RingReader)
    found = outputs.read_cluster(CONNECTION, "c1", "t")
    events = [event for group in found.outputs.groups for event in group.events]
    assert [(event.cause, event.resource) for event in events] == [("e2", None)]
