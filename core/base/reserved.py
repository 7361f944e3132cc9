"""Topic names that no create may take: Kafka's own, and those of the product's own topics.

The core knows no prefix: who decides with one hands in the names with it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

KAFKA_OWN: Final = "__"  # what Kafka's own topics begin with


class ProductTopic(StrEnum):
    """The product's topics, without a prefix; `stream/kafka/topics.py` says what each is like."""

    SPU_EVENTS = "spu-events"
    TOPIC_EVENTS = "topic-events"
    REPLICA_MAP = "replica-map"
    TOPIC_STATUS = "topic-status"
    RING_EVENTS = "ring-events"
    DEAD_LETTER = "dead-letter"
    ASSIGNER_STATE = "assigner-state"
    ASSIGNER_COMMITS = "assigner-commits"
    ASSIGNER_AUDIT = "assigner-audit"
    APPLIED_TOPICS = "applied-topics"


PRODUCT_NAMES: Final = frozenset(topic.value for topic in ProductTopic)
