"""The job's answers as lines: text for people, JSON for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, assert_never

from spu_assigner.core.base.records import ReplicaMap, RingEvent, TopicStatus
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.schemas.json_lines.lines import answer_to_json
from spu_assigner.schemas.messages.wire import DeadLetter
from spu_assigner.stream.common.printable import printable

if TYPE_CHECKING:
    from spu_assigner.stream.config.command_options import Form
    from spu_assigner.stream.kafka.client import Received, SentMessage

LISTS_SHOWN: Final = 16  # of one map; JSON has them all
RAW_SHOWN: Final = 40  # bytes of a dead letter; JSON has what the topic has


def received_line(received: Received, form: Form) -> str:
    """One message of the job's. Text may have several lines."""
    if received.fault is not None:
        return _unreadable(received, form)
    if received.answer is None:
        cluster_id, _, topic = received.key.partition("/")
        if form == "json":
            gone = {"cluster_id": cluster_id, "topic": topic, "replicas": None}
            return json.dumps({"type": "replica_map", **gone}, separators=(",", ":"))
        return f"map     {printable(received.key)}  {_gone(is_released=received.is_released)}"
    answer = received.answer
    if isinstance(answer, DeadLetter):
        return _dead_letter(answer, form)
    if form == "json":
        return answer_to_json(answer)
    match answer:
        case ReplicaMap():
            return _map(answer)
        case TopicStatus():
            return _status(answer)
        case RingEvent():
            return _ring_event(answer)
    assert_never(answer)


def sent_line(sent: SentMessage, form: Form) -> str:
    """Where an event was written."""
    if form == "json":
        line = {
            "type": "sent",
            "event_id": sent.event_id,
            "topic": sent.topic,
            "partition": sent.partition,
            "offset": sent.offset,
        }
        return json.dumps(line, separators=(",", ":"))
    place = f"{sent.topic}, partition {sent.partition}, offset {sent.offset}"
    return f"sent    {printable(str(sent.event_id))}  to {place}"


def _map(answer: ReplicaMap) -> str:
    key = f"{answer.cluster_id}/{answer.topic}"
    if answer.replicas is None:
        return f"map     {key}  {_gone(is_released=answer.is_released)}"
    chain = "" if answer.chain_index is None else f", chain index {answer.chain_index}"
    head = f"map     {key}  revision {answer.revision}, policy {answer.policy}{chain}"
    return "\n".join([head, *_lists(answer.replicas, answer.cores)])


def _gone(*, is_released: bool) -> str:
    how = "released, its data stay in Kafka" if is_released else "deleted"
    return f"none: the topic is {how}"


def _status(answer: TopicStatus) -> str:
    code = "" if answer.code is None else f" {answer.code}"
    message = "" if answer.message is None else f": {answer.message}"
    head = f"status  {answer.cluster_id}/{answer.topic}  {answer.status}{code}{message}"
    return "\n".join([head, *(_lists(answer.replicas, None) if answer.replicas else ())])


def _ring_event(answer: RingEvent) -> str:
    code = "" if answer.code is None else f" {answer.code}"
    message = "" if answer.message is None else f": {answer.message}"
    return (
        f"ring    {answer.cluster_id}  SPU {answer.spu_id} {answer.change}{code}{message}, "
        f"ring of {answer.ring_size}"
    )


def _lists(replicas: ReplicaLists, cores: ReplicaLists | None) -> list[str]:
    rows = _first(replicas)
    lines = [f"          {number:>5}  {row}" for number, row in enumerate(rows)]
    if cores is not None:
        on_cores = zip(lines, _first(cores), strict=True)
        lines = [f"{line} on cores {row}" for line, row in on_cores]
    if len(replicas) > LISTS_SHOWN:
        lines.append(f"          … {len(replicas) - LISTS_SHOWN} more (all with --output json)")
    return lines


def _first(lists: ReplicaLists) -> list[list[int]]:
    shown = ReplicaLists(lists.matrix[:LISTS_SHOWN], ragged=lists.ragged)
    return shown.tolist()


def _dead_letter(letter: DeadLetter, form: Form) -> str:
    if form == "json":
        line = {
            "type": "dead_letter",
            "source_topic": letter.source_topic,
            "source_partition": letter.source_partition,
            "source_offset": letter.source_offset,
            "code": letter.code,
            "message": letter.message,
            "raw": None if letter.raw is None else letter.raw.decode("utf-8", "replace"),
            "size": letter.size,
            "sha256": letter.sha256,
        }
        return json.dumps(line, separators=(",", ":"))
    raw = "null" if letter.raw is None else repr(letter.raw[:RAW_SHOWN])[1:]
    return (
        f"dead    {letter.source_topic}, partition {letter.source_partition}, "
        f"offset {letter.source_offset}  {letter.code}: {letter.message}; {raw}"
    )


def _unreadable(received: Received, form: Form) -> str:
    if form == "json":
        line = {"type": "unreadable", "topic": received.topic, "key": received.key}
        return json.dumps({**line, "message": received.fault}, separators=(",", ":"))
    return f"?       {received.topic}, key {received.key!r}: {received.fault}"
