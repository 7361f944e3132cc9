"""The job's answers as lines: text for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, assert_never

from spu_assigner.core.base.records import ReplicaMap, RingEvent, TopicStatus
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.schemas.json_lines.lines import answer_to_json
from spu_assigner.schemas.messages.wire import DeadLetter
from spu_assigner.stream.common.printable import printable

if TYPE_CHECKING:
    from spu_assigner.stream.kafka.client import Received, SentMessage
    from spu_assigner.stream.kafka.config.command_options import Form

LISTS_SHOWN: Final = 16  # of one map; JSON has them all
RAW_SHOWN: Final = 40  # bytes of a dead letter; JSON has what the topic has


def sent_line(sent: SentMessage, form: Form) -> str:
    """Where an event was written."""
    if form == "json":
        place = {"topic": sent.topic, "partition": sent.partition, "offset": sent.offset}
        return _json("sent", event_id=sent.event_id, **place)
    place_text = f"{sent.topic}, partition {sent.partition}, offset {sent.offset}"
    return f"sent    {printable(str(sent.event_id))}  to {place_text}"


def received_line(received: Received, form: Form) -> str:
    """One message of the job's. Text may have several lines."""
    return _json_line(received) if form == "json" else "\n".join(_text_lines(received))


def _json_line(received: Received) -> str:
    answer, key = received.answer, received.key
    if received.fault is not None:
        return _json("unreadable", topic=received.topic, key=key, message=received.fault)
    if answer is None:
        cluster_id, _, topic = key.partition("/")
        return _json("replica_map", cluster_id=cluster_id, topic=topic, replicas=None)
    if not isinstance(answer, DeadLetter):
        return answer_to_json(answer)
    raw = None if answer.raw is None else answer.raw.decode("utf-8", "replace")
    return _json("dead_letter", **{**asdict(answer), "raw": raw})


def _json(type_name: str, **members: object) -> str:
    return json.dumps({"type": type_name, **members}, separators=(",", ":"))


def _text_lines(received: Received) -> Iterator[str]:
    answer = received.answer
    if received.fault is not None:
        yield f"?       {received.topic}, key {received.key!r}: {received.fault}"
        return
    match answer:
        case None:
            how = "released, its data stay in Kafka" if received.is_released else "deleted"
            yield f"map     {printable(received.key)}  none: the topic is {how}"
        case DeadLetter():
            raw = "null" if answer.raw is None else repr(answer.raw[:RAW_SHOWN])[1:]
            yield (
                f"dead    {answer.source_topic}, partition {answer.source_partition}, "
                f"offset {answer.source_offset}  {answer.code}: {answer.message}; {raw}"
            )
        case ReplicaMap():
            chain = "" if answer.chain_index is None else f", chain index {answer.chain_index}"
            yield (
                f"map     {answer.cluster_id}/{answer.topic}  revision {answer.revision}, "
                f"policy {answer.policy}{chain}"
            )
            yield from _lists(answer.replicas, answer.cores)
        case TopicStatus():
            place = f"{answer.cluster_id}/{answer.topic}"
            yield f"status  {place}  {answer.status}{_reason(answer)}"
            yield from _lists(answer.replicas, None)
        case RingEvent():
            of_what = "" if answer.resource is None else f" of {answer.resource}"
            yield (
                f"ring    {answer.cluster_id}  SPU {answer.spu_id} {answer.change}{of_what}"
                f"{_reason(answer)}, ring of {answer.ring_size}"
            )
        case _:
            assert_never(answer)


def _reason(answer: TopicStatus | RingEvent) -> str:
    code = "" if answer.code is None else f" {answer.code}"
    return code if answer.message is None else f"{code}: {answer.message}"


def _lists(replicas: ReplicaLists | None, cores: ReplicaLists | None) -> Iterator[str]:
    if not replicas:
        return
    on_cores = [] if cores is None else _first(cores)
    for number, (row, of_row) in enumerate(zip_longest(_first(replicas), on_cores)):
        yield f"          {number:>5}  {row}{'' if of_row is None else f' on cores {of_row}'}"
    if len(replicas) > LISTS_SHOWN:
        yield f"          … {len(replicas) - LISTS_SHOWN} more (all with --output json)"


def _first(lists: ReplicaLists) -> list[list[int]]:
    return ReplicaLists(lists.matrix[:LISTS_SHOWN], ragged=lists.ragged).tolist()
