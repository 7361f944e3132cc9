"""Kafka's ids of topics: one that was deleted and recreated has another id.

By offsets alone it looks like the old one, once it has grown past the offsets that were read there.
A broker that gives no ids leaves only the offsets to go by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from spu_assigner.stream.kafka.retry import look_again

_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"  # of a broker without topic ids


def ask_topic_ids(admin: Any, topics: Iterable[str], *, seconds: float) -> dict[str, str]:
    """Ask a broker for the ids of topics.

    A topic that this broker does not know, or gives no id of, is left out of the answer. The broker
    is what the client takes for the controller: after a failure the next request finds another one.

    Raises:
        KafkaException: no broker answers, or it refuses.
    """
    futures = admin.describe_topics(TopicCollection(list(topics)), request_timeout=seconds)
    found: dict[str, str] = {}
    for topic, future in futures.items():
        try:
            known = id_of(future.result())
        except KafkaException as reason:
            if reason.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                look_again(admin, seconds=seconds)
                raise
        else:
            if known is not None:
                found[topic] = known
    return found


def id_of(described: Any) -> str | None:
    """The id in a description of a topic; None: the broker gives none."""
    found = str(described.topic_id)
    return None if found == _NO_ID else found


def renewed_topics(before: Mapping[str, str], now: Mapping[str, str | None]) -> list[str]:
    """The topics that have another id than before, by name."""
    return sorted(
        topic
        for topic, found in now.items()
        if found is not None and before.get(topic, found) != found
    )
