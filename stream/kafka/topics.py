"""The product's Kafka topics, in one table: TOPICS.

Settings named `required` are promises the job relies on; `tuning` is only set at creation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from spu_assigner.core.base.limits import (
    MANUAL_MESSAGE_SIZE_MAX,
    MAP_ENVELOPE_SIZE,
    MAP_SIZE_MAX,
    RING_SIZE_MAX,
    ProductTopic,
    is_legal_name,
    name_fault,
)
from spu_assigner.stream.kafka.errors import TopicsError

SPU_EVENTS: Final = ProductTopic.SPU_EVENTS.value
TOPIC_EVENTS: Final = ProductTopic.TOPIC_EVENTS.value
REPLICA_MAP: Final = ProductTopic.REPLICA_MAP.value
TOPIC_STATUS: Final = ProductTopic.TOPIC_STATUS.value
RING_EVENTS: Final = ProductTopic.RING_EVENTS.value
DEAD_LETTER: Final = ProductTopic.DEAD_LETTER.value
ASSIGNER_STATE: Final = ProductTopic.ASSIGNER_STATE.value
ASSIGNER_COMMITS: Final = ProductTopic.ASSIGNER_COMMITS.value
ASSIGNER_AUDIT: Final = ProductTopic.ASSIGNER_AUDIT.value
APPLIED_TOPICS: Final = ProductTopic.APPLIED_TOPICS.value

INPUTS: Final = (SPU_EVENTS, TOPIC_EVENTS)
PARTITIONS: Final = 4  # of topics keyed by cluster: as many readers as a small machine has cores

# Kafka holds a whole producer batch against max.message.bytes, not one message, and librdkafka
# batches up to 1 MB: the inputs' limit is that of the larger message; the decoder holds to 64 KiB.
MESSAGE_SIZE_MAX: Final = MANUAL_MESSAGE_SIZE_MAX + MAP_ENVELOPE_SIZE
MAP_MESSAGE_SIZE_MAX: Final = MAP_SIZE_MAX + MAP_ENVELOPE_SIZE + RING_SIZE_MAX

# Only closed segments are compacted: small ones keep what a reader from the start must read small.
_COMPACTED_OFTEN: Final = {
    "segment.bytes": str(64 * 1024 * 1024),
    "segment.ms": str(60 * 60 * 1000),
    "min.cleanable.dirty.ratio": "0.3",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """What one topic must be like."""

    name: str  # without the prefix
    cleanup: str
    message_size_max: int = MESSAGE_SIZE_MAX
    is_input: bool = False
    single: bool = False  # one partition, and no more
    is_applys: bool = False  # `apply` writes it; the job starts without it
    tuning: Mapping[str, str] = field(default_factory=dict)

    @property
    def required(self) -> dict[str, str]:
        """The settings that the job relies on; a size may also be larger."""
        settings = {"cleanup.policy": self.cleanup, "max.message.bytes": str(self.message_size_max)}
        if self.is_input:  # The merge of both inputs goes by the broker's clock.
            settings["message.timestamp.type"] = "LogAppendTime"
        return settings


TOPICS: Final = (
    TopicSpec(name=SPU_EVENTS, cleanup="delete", is_input=True),
    TopicSpec(name=TOPIC_EVENTS, cleanup="delete", is_input=True),
    TopicSpec(
        name=REPLICA_MAP,
        cleanup="compact",
        message_size_max=MAP_MESSAGE_SIZE_MAX,
        tuning=_COMPACTED_OFTEN,
    ),
    TopicSpec(name=TOPIC_STATUS, cleanup="delete", message_size_max=MAP_MESSAGE_SIZE_MAX),
    TopicSpec(name=RING_EVENTS, cleanup="delete"),
    TopicSpec(name=DEAD_LETTER, cleanup="delete"),
    TopicSpec(name=ASSIGNER_STATE, cleanup="compact", tuning=_COMPACTED_OFTEN),
    TopicSpec(
        name=ASSIGNER_COMMITS,
        cleanup="compact",
        single=True,  # the marker is read back from one place
        tuning={**_COMPACTED_OFTEN, "segment.bytes": str(4 * 1024 * 1024)},
    ),
    TopicSpec(name=ASSIGNER_AUDIT, cleanup="delete", single=True),
    TopicSpec(
        name=APPLIED_TOPICS, cleanup="compact", single=True, is_applys=True, tuning=_COMPACTED_OFTEN
    ),
)
JOB_TOPICS: Final = tuple(spec for spec in TOPICS if not spec.is_applys)


def topic_name(name: str, *, prefix: str = "") -> str:
    """The topic's name in Kafka."""
    full = f"{prefix}{name}"
    if not is_legal_name(full):
        raise TopicsError(
            f"the prefix {prefix!r} makes no topic name ({full!r}); expected letters, digits, "
            f"dots, dashes and underscores, 249 in all at most{name_fault(full)}"
        )
    return full
