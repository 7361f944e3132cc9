"""How far a checkpoint has read its input topics, and which topics these were.

Spark's logs of a checkpoint have offsets. Kafka's ids of the topics are noted beside them, in
`input-topics`, when the job first starts with them: by offsets alone a topic that was recreated and
has grown past the old ones looks like the old one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from spu_assigner.stream.job.checkpoint.data_loss import InputPositions, input_topics, topic_ids
from spu_assigner.stream.job.checkpoint.files import (
    CheckpointDamagedError,
    Files,
    Positions,
    batches_in,
    read_lines,
    read_positions,
    write_text,
)
from spu_assigner.stream.job.checkpoint.recovered import Recovery
from spu_assigner.stream.kafka.config.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTE: Final = "input-topics"


def read_inputs(files: Files, checkpoint: str, recovery: Recovery | None = None) -> InputPositions:
    """What the next batch of a checkpoint begins with; empty before the first one is done, unless
    that begins where a recovery says.
    """
    ids = _read_ids(files, checkpoint)
    following: Positions = {}
    if recovery is not None:
        following, ids = recovery.positions, {**recovery.topic_ids, **ids}
    begun = batches_in(files, f"{checkpoint}/offsets")
    if not begun:
        return InputPositions(following=following, begun=following, ids=ids)
    newest = begun[-1]
    until = read_positions(files, checkpoint, newest)
    if newest in batches_in(files, f"{checkpoint}/commits"):
        following = until
    elif newest > 0:  # Batch 0 begins where the topics began, or where a recovery says.
        following = read_positions(files, checkpoint, newest - 1)
    return InputPositions(following=following, begun=until, ids=ids)


def note_topics(
    spark: SparkSession, settings: Settings, checkpoint: str, known: Mapping[str, str]
) -> dict[str, str]:
    """Note the topics that are read, unless that was done; gives their ids.

    Args:
        known: ids that were noted, here or in a marker.
    """
    topics = input_topics(settings)
    ids = dict(known)
    if not ids.keys() >= {*topics}:
        ids = {**topic_ids(settings.connection().client(), topics), **known}
    if ids != _read_ids(spark, checkpoint):
        write_text(spark, f"{checkpoint}/{NOTE}", json.dumps(ids, sort_keys=True) + "\n")
    return ids


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
