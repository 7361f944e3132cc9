"""What a release left behind (`tests/data/make_release.py`), put back."""

from __future__ import annotations

import base64
import json
import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from spu_assigner.stream.job.checkpoint.inputs import NOTE, topic_ids
from spu_assigner.stream.kafka.topic_admin import create_topics
from spu_assigner.stream.kafka.topics import PARTITIONS, TOPICS
from support.job.streams import marker_of

PREFIX = "released."
INPUTS = ("spu-events", "topic-events")
MARKERS = ("assigner-commits", "assigner-audit")
DATA = Path(__file__).parents[2] / "data"


@dataclass(frozen=True, kw_only=True)
class Left:
    """One message of its topics."""

    topic: str  # without the prefix
    partition: int
    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def unpack(archive: Path, folder: Path) -> list[Left]:
    """The checkpoint goes to `folder`/checkpoint; gives the messages. Spark notes in a checkpoint
    where it is; here it always was where it is now."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    for checksum in folder.rglob(".*.crc"):  # of the files as they were; Spark can do without
        checksum.unlink()
    notes = [*folder.glob("checkpoint/state/*/_metadata/v2/*")]
    assert notes
    for path in filter(Path.is_file, notes):
        text = path.read_text(encoding="utf-8")
        place = f'"file:{folder}/checkpoint/state/'
        path.write_text(re.sub(r'"file:[^"]*?/checkpoint/state/', place, text), encoding="utf-8")
    lines = (folder / "messages.jsonl").read_text(encoding="utf-8").splitlines()
    return [
        Left(
            topic=row["topic"].removeprefix(PREFIX),
            partition=row["partition"],
            offset=row["offset"],
            time_ms=row["time_ms"],
            key=_bytes(row["key"]),
            value=_bytes(row["value"]),
            headers=[(name, _bytes(value)) for name, value in row["headers"]],
        )
        for row in map(json.loads, lines)
    ]


def archives() -> dict[str, Path]:
    """The archive of each release that is kept, by its name."""
    return {
        path.name.removeprefix("release-").removesuffix(".tar.gz"): path
        for path in sorted(DATA.glob("release-*.tar.gz"))
    }


def note_ids(bootstrap_servers: str, checkpoint: Path, *, prefix: str = PREFIX) -> None:
    """Note in a checkpoint Kafka's ids of the topics put back."""
    ids = topic_ids({"bootstrap.servers": bootstrap_servers}, [prefix + name for name in INPUTS])
    (checkpoint / NOTE).write_text(json.dumps(ids, sort_keys=True) + "\n", encoding="utf-8")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def fill(bootstrap_servers: str, messages: list[Left], *, prefix: str = PREFIX) -> None:
    """Make the topics and put the messages there, the input at the offsets and times of then.

    What Kafka has written between messages at the end of each transaction is left out, so outputs
    move together. Nothing is dropped for its age. Markers name the topics by their ids of now.
    """
    client = {"bootstrap.servers": bootstrap_servers}
    _make(client, prefix)
    failures: list[object] = []

    def delivered(error: object, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer({**client, "enable.idempotence": True, "linger.ms": 5})

    def put(part: Iterable[Left]) -> None:
        for left in part:
            producer.produce(
                prefix + left.topic,
                left.value,
                left.key,
                left.partition,
                on_delivery=delivered,
                timestamp=left.time_ms,
                headers=left.headers,
            )
        assert producer.flush(60) == 0
        assert not failures

    put(left for left in messages if left.topic not in MARKERS)
    put(_renamed([left for left in messages if left.topic in MARKERS], client, prefix))
    create_topics(client, prefix=prefix)  # Inputs get the times of the broker again.


def _renamed(markers: list[Left], client: dict[str, str], prefix: str) -> Iterator[Left]:
    """Markers with the ids of the topics of now: as long as those of then, so the rest stays."""
    ids = topic_ids(client, [prefix + name for name in INPUTS])
    then = marker_of(markers[-1].value).topic_ids
    for left in markers:
        value = left.value or b""
        for topic, each in then.items():
            new = ids[prefix + topic.removeprefix(PREFIX)]
            assert len(new) == len(each)
            value = value.replace(each.encode(), new.encode())
        yield replace(left, value=value)


def _make(client: dict[str, str], prefix: str) -> None:
    """The topics as they are to be filled; a setting that is changed later holds a moment later."""
    topics = [
        NewTopic(
            prefix + spec.name,
            1 if spec.single else PARTITIONS,
            1,
            config={
                **spec.required,
                **spec.tuning,
                "retention.ms": "-1",
                **({"message.timestamp.type": "CreateTime"} if spec.is_input else {}),
            },
        )
        for spec in TOPICS
    ]
    with AdminClient(client) as admin:
        for future in admin.create_topics(topics).values():
            future.result(30)
