"""A replica assigner as a user writes it with Quix Streams; runs in an environment of its own.

    python quix_app.py BOOTSTRAP PREFIX STATE_FOLDER

Joins and creates from `<PREFIX>events`, maps to `<PREFIX>maps`, exactly once, a commit every 0.1 s;
ring, chain index and topics of a cluster in its state. It knows what the plain loop knows. Ends
with SIGTERM.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from fluvio import place, replica_map
from messages import decode, encode_map
from quixstreams import Application, State
from quixstreams.models.serializers import Deserializer, Serializer

COMMIT_SECONDS: Final = 0.1
# A commit that falls due while it waits for messages would wait with it; by default a second.
POLL_SECONDS: Final = 0.01

Fields = dict[str, Any]


class EventDeserializer(Deserializer):
    """The name of an event's type, and its fields."""

    def __call__(self, value: bytes, ctx: Any) -> tuple[str, Fields]:
        return decode(value)


class MapSerializer(Serializer):
    """A map's fields as a message."""

    def __call__(self, value: Fields, ctx: Any) -> bytes:
        return encode_map(value)


def answer(message: tuple[str, Fields], state: State) -> Fields | None:
    """The map that an event is answered by, if it is; the state is that of its cluster."""
    kind, event = message
    ring = state.get("ring", [])
    if kind == "SpuJoined":
        state.set("ring", sorted({*ring, event["spu_id"]}))
        return None
    replicas, topic = event["replication_factor"], f"topic {event['topic']}"
    if not 1 <= replicas <= len(ring) or state.exists(topic):
        return None
    first = state.get("index", 0)
    index = first + event["partitions"]
    state.set("index", index)
    state.set(topic, event["event_id"])
    return replica_map(event, place(ring, first, event["partitions"], replicas), index)


def main(bootstrap: str, prefix: str, folder: str) -> None:
    """Answer until the request to end."""
    application = Application(
        broker_address=bootstrap,
        consumer_group=f"{prefix}quix",
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=COMMIT_SECONDS,
        consumer_poll_timeout=POLL_SECONDS,
        consumer_extra_config={"fetch.wait.max.ms": 5},
        state_dir=folder,
        loglevel="WARNING",
    )
    events = application.topic(
        f"{prefix}events", key_deserializer="str", value_deserializer=EventDeserializer()
    )
    maps = application.topic(
        f"{prefix}maps", key_serializer="str", value_serializer=MapSerializer()
    )
    answers = application.dataframe(events).apply(answer, stateful=True)
    answers = answers.filter(lambda fields: fields is not None)
    answers.to_topic(maps, key=lambda fields: f"{fields['cluster_id']}/{fields['topic']}")
    application.run()


if __name__ == "__main__":
    main(*sys.argv[1:4])
