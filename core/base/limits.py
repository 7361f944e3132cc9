"""Every limit of the product, each with its reason, and the names that no create may take.

Past one: a rejection or a dead letter, never a crash.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

MESSAGE_SIZE_MAX: Final = 64 * 1024  # an event is small; more is a mistake or an attack
MANUAL_MESSAGE_SIZE_MAX: Final = 1024 * 1024  # a manual map carries its lists inside
MANUAL_FILE_SIZE_MAX: Final = 8 * 1024 * 1024
DEAD_LETTER_RAW_SIZE_MAX: Final = 64 * 1024  # of a bad message so much is kept, and its SHA-256
MAP_SIZE_MAX: Final = 8 * 1024 * 1024  # an encoded replica map: one Kafka message, one state entry
MAP_ENVELOPE_SIZE: Final = 64 * 1024  # what a message holds beside the map: names, headers, frame
RING_SIZE_MAX: Final = 384 * 1024  # of a reason: 10,000 SPUs in no order, each with a capacity
MOVES_MAX: Final = 2**31 - 1  # of a rebalance, as the other numbers of events
# What one event may ask to move, so that the events behind it do not wait for seconds.
REBALANCE_MOVES_MAX: Final = 50_000  # that a rebalance plans: some 1.5 s on 10,000 SPUs
RESIZE_MOVES_MAX: Final = 200_000  # that another replication factor adds or removes: some 2 s
SPUS_A_RULED_MOVE: Final = 256  # with so many SPUs a move under constraints takes as long again
PLACING_LOOKS_MAX: Final = 2**25  # at SPUs, of a create or growth by a rule; some 3 s
RETRY_LOOKS_MAX: Final = 12_000_000  # likewise, of what waits; then the next event goes on
RESOURCE_REPLICAS_MAX: Final = 200_000  # that a rebalance by resources weighs
RULED_LISTS_MAX: Final = 12_000  # of topics with rules that a rebalance weighs; some 4 s
LOOKS_EACH: Final = 20  # at each SPU of a ring whose order is computed again
BAND: Final = 1  # replicas from the fair share, unless a rebalance says otherwise
BAND_MAX: Final = 1  # more is not evened out
BAND_PERCENT: Final = 5  # of a rebalance by resources, unless it says otherwise
BAND_PERCENT_MAX: Final = 1_000  # more is no band
MOVES_REPORTED_MAX: Final = 2_048  # of a map's reason: it has to fit into the envelope
PARTITIONS_MAX: Final = 100_000  # of one request
REPLICATION_FACTOR_MAX: Final = 32
SPUS_MAX: Final = 10_000  # of one cluster
CORES_MAX: Final = 1_024  # of one SPU: each core keeps a weight in the state
CAPACITY_MAX: Final = 2**31 - 1  # replica slots; counts are kept in 64 bits
SPU_ID_MAX: Final = 2**31 - 1  # Kafka's and Fluvio's ids are 32-bit integers
INDEX_MAX: Final = 2**31 - 1  # start_index and shift, as Kafka's 32-bit start
RACK_LENGTH_MAX: Final = 128  # characters
RESOURCES_MAX: Final = 8  # of one SPU, of one demand: each costs time in each decision
RESOURCE_NAME_LENGTH_MAX: Final = 64  # characters
AMOUNT_MAX: Final = 2**53 - 1  # of a resource: what every reader of JSON keeps exactly
LABEL_LENGTH_MAX: Final = 256  # characters of a label's or taint's key, and of its value
TAINTS_MAX: Final = 16  # of one SPU
RULES_MAX: Final = 16  # of each kind in the constraints of a topic: each costs time per SPU
SPREAD_LEVELS_MAX: Final = 4  # as region, zone, room, rack
SELECTOR_LENGTH_MAX: Final = 1_024  # characters
PREFERENCE_WEIGHT_MAX: Final = 1_000
EVENT_ID_LENGTH_MAX: Final = 256  # characters
EVENT_IDS_REMEMBERED: Final = 256  # of one cluster, beside those of living topics
WAITING_MAX: Final = 10_000  # creates of one cluster
REDPANDA_SLOTS_PER_CORE: Final = 7_000  # document 003
REDPANDA_SLOTS_RESERVED: Final = 2  # document 003: capacity = cores * 7000 - 2
REDPANDA_CORE0_WEIGHT: Final = 2  # document 003: core 0 already does the controller's work

# Whether a cluster or topic may be called so: Kafka's rule for topic names.
is_legal_name: Final = re.compile(r"(?!\.\.?\Z)[a-zA-Z0-9._-]{1,249}\Z").match
NAME_LENGTH_MAX: Final = 249  # characters
_find_illegal: Final = re.compile(r"[^a-zA-Z0-9._-]").search


def name_fault(name: str) -> str:
    """What of a name is not legal, for the end of a message; nothing where that is plain."""
    if (wrong := _find_illegal(name)) is not None:
        return f": character {wrong.start() + 1} is {wrong[0]!r}"
    return f": it has {len(name)} characters" if len(name) > NAME_LENGTH_MAX else ""


def is_text(text: str) -> bool:
    """Whether UTF-8 can hold it: not half a surrogate pair, which a text of Python's may hold."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def default_capacity(cores: int) -> int:
    """Replica slots of an SPU that names none. Source: document 003."""
    return cores * REDPANDA_SLOTS_PER_CORE - REDPANDA_SLOTS_RESERVED


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
