"""The pages without a broker: what a job would write goes straight into what they know."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any, cast

from flask.testing import FlaskClient
from spu_assigner.core.base.events import Event
from spu_assigner.stream.audit.ui.app import make_app
from spu_assigner.stream.audit.ui.known import Known
from spu_assigner.stream.audit.ui.live import Live
from spu_assigner.stream.clusters.plan.model import KafkaCluster
from spu_assigner.stream.job.shard.bundle import KINDS, MessageKind
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.moves_record import MovesFollower
from support.shard.stores import OneShard, Raw


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A message as the client would give it."""

    topic: str
    its_key: bytes | None
    its_value: bytes | None
    time_ms: int = 1_700_000_000_000

    def key(self) -> bytes | None:
        return self.its_key

    def value(self) -> bytes | None:
        return self.its_value

    def timestamp(self) -> tuple[int, int]:
        return 1, self.time_ms


def outputs(batches: Iterable[Sequence[Event | Raw]]) -> list[Output]:
    """All messages that a job writes for batches of events."""
    shard = OneShard()
    return [
        Output(
            topic=KINDS[MessageKind(message.kind)][0],
            its_key=message.key,
            its_value=message.value,
            time_ms=message.time_ms,
        )
        for batch in batches
        for bundle in shard.bundles(batch)
        for message in bundle.messages()
    ]


def take(known: Known, *messages: Output) -> None:
    for message in messages:
        known.take(message.topic, cast(Any, message))


def known_of(messages: Iterable[Output]) -> Known:
    """What the pages know after these."""
    known = Known()
    take(known, *messages)
    return known


class Still:
    """Stands where `Live` does, and follows nothing."""

    def __init__(self, known: Known, trouble: str | None = None) -> None:
        self._known = known
        self._lock = threading.RLock()
        self.trouble = trouble
        self.is_loaded = True
        self.connection = self.target = Connection(bootstrap_servers="127.0.0.1:1")
        self.kafka: KafkaCluster | None = None
        self.looks = 0
        self.moves = MovesFollower(self.connection)
        self.moves.is_read = True

    @contextmanager
    def known(self) -> Iterator[Known]:
        with self._lock:
            yield self._known

    def as_live(self) -> Live:
        return cast(Live, self)


def pages_of(known: Known) -> FlaskClient:
    return make_app(Still(known).as_live()).test_client()


class Text(HTMLParser):
    """What a reader sees, and the elements there are."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("td", "th", "strong", "small", "h2", "li"):
            self.text += " "


def read(pages: FlaskClient, path: str, status: int = 200) -> Text:
    answer = pages.get(path)
    assert answer.status_code == status
    page = Text()
    page.feed(answer.text)
    page.text = re.sub(r"\s+", " ", page.text)
    return page
