"""How far a checkpoint has read its input topics, and which topics these were.

Spark's logs of a checkpoint tell offsets. Kafka's ids of the topics are noted beside them, in
`input-topics`, when the job first starts with them: by offsets alone a topic that was made anew and
has grown past the old ones looks like the old one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spu_assigner.stream.checkpoint.data_loss import check_there, topic_ids
from spu_assigner.stream.checkpoint.files import (
    CheckpointDamagedError,
    CheckpointError,
    Files,
    Positions,
    batches_in,
    read_lines,
    read_positions,
    write_text,
)
from spu_assigner.stream.checkpoint.recovered import Recovery
from spu_assigner.stream.config.settings import Settings
from spu_assigner.stream.kafka.topics import SPU_EVENTS, TOPIC_EVENTS, topic_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTE: Final = "input-topics"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPositions:
    """How far the input topics were read, and which topics they were."""

    following: Positions  # what the next batch begins with
    begun: Positions  # where it ends, if it was begun already; else the same
    ids: Mapping[str, str]  # of the topics; those that were not noted are left out


def check_inputs(settings: Settings, inputs: InputPositions) -> None:
    """Look whether what is to be read next is still in Kafka.

    Raises:
        InputError: it is not all there.
        CheckpointError: the checkpoint has read other topics.
        TopicsError: Kafka does not answer, or a topic is missing.
    """
    topics = input_topics(settings)
    others = sorted({*inputs.following, *inputs.begun, *inputs.ids} - {*topics})
    if others:
        raise CheckpointError(
            f"checkpoint {settings.checkpoint} has read {', '.join(others)}, and the settings say "
            f"{', '.join(topics)}; give it the topic prefix it had, or name another checkpoint"
        )
    client = settings.connection().client()
    check_there(client, following=inputs.following, begun=inputs.begun, ids=inputs.ids)


def input_topics(settings: Settings) -> list[str]:
    """The names of the topics that are read."""
    return [topic_name(name, prefix=settings.topic_prefix) for name in (TOPIC_EVENTS, SPU_EVENTS)]


def read_inputs(files: Files, checkpoint: str, recovery: Recovery | None = None) -> InputPositions:
    """What the next batch of a checkpoint begins with; empty before the first one is done, unless
    that begins where a recovery says.

    Raises:
        CheckpointDamagedError: a file that it is read from is missing or wrong.
        Py4JJavaError: a file cannot be read.
    """
    begun = batches_in(files, f"{checkpoint}/offsets")
    done = batches_in(files, f"{checkpoint}/commits")
    ids = _read_ids(files, checkpoint)
    first = {} if recovery is None else recovery.positions
    if not begun:
        return InputPositions(following=first, begun=first, ids=ids)
    newest = begun[-1]
    until = read_positions(files, checkpoint, newest)
    if newest in done:
        return InputPositions(following=until, begun=until, ids=ids)
    if newest == 0:  # Without a recovery it begins where the topics began when it was planned.
        return InputPositions(following=first, begun=until, ids=ids)
    return InputPositions(
        following=read_positions(files, checkpoint, newest - 1), begun=until, ids=ids
    )


def note_topics(spark: SparkSession, settings: Settings, checkpoint: str) -> None:
    """Note the topics that are read, unless that was done.

    Raises:
        TopicsError: Kafka does not answer, or a topic is missing.
        Py4JJavaError: it cannot be written.
    """
    known = _read_ids(spark, checkpoint)
    topics = input_topics(settings)
    if not known.keys() >= {*topics}:
        found = topic_ids(settings.connection().client(), topics)
        if found:
            text = json.dumps({**found, **known}, sort_keys=True)
            write_text(spark, f"{checkpoint}/{NOTE}", text + "\n")


def _read_ids(files: Files, checkpoint: str) -> dict[str, str]:
    lines = read_lines(files, f"{checkpoint}/{NOTE}")
    if lines is None:
        return {}
    try:
        return {str(topic): str(each) for topic, each in json.loads("\n".join(lines)).items()}
    except (ValueError, AttributeError) as reason:
        raise CheckpointDamagedError(
            checkpoint=checkpoint, what=NOTE, reason=f"it is no note of topics: {reason}"
        ) from reason
