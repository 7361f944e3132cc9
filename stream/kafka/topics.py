"""The product's Kafka topics: what each must be like, making them, and telling what is wrong.

One table, TOPICS; the job checks its own at start, so that a missing topic is one line and no stack
trace. Settings named `required` are promises the job relies on; `tuning` is only set at creation.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.limits import (
    MANUAL_MESSAGE_SIZE_MAX,
    MAP_ENVELOPE_SIZE,
    MAP_SIZE_MAX,
    is_legal_name,
)
from spu_assigner.core.base.reserved import ProductTopic

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, TopicMetadata
    from spu_assigner.stream.kafka.acls import Role
    from spu_assigner.stream.kafka.connection_diagnosis import Complaints

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
ACCESS: Final = "access"  # a fault of the user's rights; no setting of Kafka's has this name
REQUEST_SECONDS_MAX: Final = 10.0  # a broker at hand answers in milliseconds
POLL_SECONDS: Final = 0.02
CREATE_TOPICS: Final = "run `spu-assigner topics create`"
GRANTING: Final = "grant what `spu-assigner topics acls` lists"

# Kafka holds a whole producer batch against max.message.bytes, not one message, and librdkafka
# batches up to 1 MB: the inputs' limit is that of the larger message; the decoder holds to 64 KiB.
MESSAGE_SIZE_MAX: Final = MANUAL_MESSAGE_SIZE_MAX + MAP_ENVELOPE_SIZE
MAP_MESSAGE_SIZE_MAX: Final = MAP_SIZE_MAX + MAP_ENVELOPE_SIZE

# Only closed segments are compacted: small ones keep what a reader from the start must read small.
_COMPACTED_OFTEN: Final = {
    "segment.bytes": str(64 * 1024 * 1024),
    "segment.ms": str(60 * 60 * 1000),
    "min.cleanable.dirty.ratio": "0.3",
}

_REFUSED: Final = object()


class TopicsError(AssignerError):
    """Kafka cannot be reached, or its topics are not what the job needs."""


class AccessError(TopicsError):
    """Kafka's authorizer does not let this user do what the job, or a command, does."""


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
        settings = {
            "cleanup.policy": self.cleanup,
            "max.message.bytes": str(self.message_size_max),
        }
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong with a topic."""

    topic: str  # with the prefix
    found: str
    expected: str
    setting: str | None = (
        None  # None: the topic itself, or its partitions; ACCESS: the user's rights
    )

    def __str__(self) -> str:
        what = f"{self.topic}: {self.setting}" if self.setting else self.topic
        return f"{what} is {self.found}, expected {self.expected}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """What `create_topics` did, by full name."""

    created: tuple[str, ...]
    repaired: tuple[str, ...]
    unchanged: tuple[str, ...]


def topic_name(name: str, *, prefix: str = "") -> str:
    """The topic's name in Kafka.

    Raises:
        TopicsError: Kafka would not take it.
    """
    full = f"{prefix}{name}"
    if not is_legal_name(full):
        raise TopicsError(
            f"the prefix {prefix!r} makes no topic name ({full!r}); expected letters, digits, "
            "dots, dashes and underscores, 249 in all at most"
        )
    return full


def create_topics(
    client: Mapping[str, Any],
    *,
    prefix: str = "",
    partitions: int = PARTITIONS,
    replication_factor: int = -1,
) -> TopicReport:
    """Make the topics that are missing and mend required settings of the others; safe to repeat.

    Args:
        client: settings for confluent-kafka, as `Connection.client` gives them.
        partitions: of each new topic that may have several.
        replication_factor: of each new topic; -1 for the broker's own default.

    Raises:
        AccessError: the user may not see all topics: those that are there would look missing.
        TopicsError: Kafka cannot be reached, refuses, or a topic has partitions that it may not.
    """
    names = {topic_name(spec.name, prefix=prefix): spec for spec in TOPICS}
    counts = {name: 1 if spec.single else partitions for name, spec in names.items()}
    created: set[str] = set()
    repaired: set[str] = set()
    with _admin(client) as (admin, complaints):
        _require_sight(admin, client, complaints, list(names))
        deadline = time.monotonic() + REQUEST_SECONDS_MAX
        # Kafka's controller answers before its brokers know, and somebody else may do the same now:
        # look again until all is well.
        while faults := _faults(admin, client, complaints, names):
            if stuck := [fault for fault in faults if not _can_be_mended(fault)]:
                raise TopicsError(f"{stuck[0]}; delete the topic, or choose another prefix")
            if time.monotonic() > deadline:
                raise TopicsError(
                    f"still not as asked after {REQUEST_SECONDS_MAX:.0f} s: {faults[0]}"
                )
            missing = [fault.topic for fault in faults if _is_missing(fault)]
            wrong = [
                fault for fault in faults if not _is_missing(fault) and fault.topic not in created
            ]
            created |= create_missing(
                admin,
                {name: names[name] for name in missing if name not in created},
                counts=counts,
                replication_factor=replication_factor,
            )
            repaired |= _fix(admin, wrong, names)
            time.sleep(POLL_SECONDS)
    return TopicReport(
        created=tuple(name for name in names if name in created),
        repaired=tuple(name for name in names if name in repaired),
        unchanged=tuple(name for name in names if name not in created | repaired),
    )


def create_missing(
    admin: AdminClient,
    specs: Mapping[str, TopicSpec],
    *,
    counts: Mapping[str, int],
    replication_factor: int,
) -> set[str]:
    """Make these topics; the names of those that were not made by somebody else meanwhile."""
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import NewTopic

    if not specs:
        return set()
    topics = [
        NewTopic(
            name,
            num_partitions=counts[name],
            replication_factor=replication_factor,
            config={**spec.required, **spec.tuning},
        )
        for name, spec in specs.items()
    ]
    there = KafkaError.TOPIC_ALREADY_EXISTS
    return {
        name
        for name, future in admin.create_topics(topics).items()
        if _result(future, f"{name} could not be created", unless=there) is not _REFUSED
    }


def _fix(admin: AdminClient, faults: Sequence[Fault], names: Mapping[str, TopicSpec]) -> set[str]:
    """Set the settings that are wrong; the topics' names."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    entries: dict[str, list[ConfigEntry]] = {}
    for fault in faults:
        entry = ConfigEntry(
            fault.setting, fault.expected, incremental_operation=AlterConfigOpType.SET
        )
        entries.setdefault(fault.topic, []).append(entry)
    resources = [
        ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=changes)
        for name, changes in entries.items()
    ]
    altered = admin.incremental_alter_configs(resources) if resources else {}
    for resource, future in altered.items():
        _result(future, f"{resource.name} could not be mended")
    return set(entries)


def find_faults(
    client: Mapping[str, Any], *, prefix: str = "", role: Role | None = None
) -> tuple[Fault, ...]:
    """What is wrong with the topics, in the table's order; empty when the job can start.

    Where rights of the role, by default the job's, are missing nothing else is told: it may be
    hidden from this user.

    Raises:
        TopicsError: Kafka cannot be reached.
    """
    with _admin(client) as (admin, complaints):
        _present(admin, client, complaints)  # says best why nobody answers
        names = {topic_name(spec.name, prefix=prefix): spec for spec in JOB_TOPICS}
        return _access_faults(admin, prefix, role) or _faults(admin, client, complaints, names)


def _access_faults(admin: AdminClient, prefix: str, role: Role | None) -> tuple[Fault, ...]:
    from confluent_kafka import KafkaException
    from spu_assigner.stream.kafka.access import missing_rights
    from spu_assigner.stream.kafka.acls import Role

    try:
        missing = missing_rights(admin, role or Role.JOB, prefix=prefix)
    except KafkaException as reason:
        raise TopicsError(f"the topics could not be described: {_words(reason)}") from reason
    return tuple(
        Fault(topic=topic, setting=ACCESS, found=found, expected=expected)
        for topic, (found, expected) in missing.items()
    )


def partition_counts(
    client: Mapping[str, Any], names: Sequence[str], *, prefix: str = ""
) -> dict[str, int]:
    """How many partitions these topics have, by their whole names.

    Raises:
        TopicsError: Kafka cannot be reached, or a topic is missing.
    """
    with _admin(client) as (admin, complaints):
        present = _present(admin, client, complaints)
    full = [topic_name(name, prefix=prefix) for name in names]
    if missing := [name for name in full if name not in present]:
        raise TopicsError(f"missing topics {', '.join(missing)}; {CREATE_TOPICS}")
    return {name: len(present[name].partitions) for name in full}


def check_topics(client: Mapping[str, Any], *, prefix: str = "", role: Role | None = None) -> None:
    """Return if the job can start, or the role, if another is given, can do its work.

    Raises:
        AccessError: the user lacks rights; one line says which, and how to grant them.
        TopicsError: it cannot; one line says which topics are missing or wrong and how to mend it.
    """
    faults = find_faults(client, prefix=prefix, role=role)
    if not faults:
        return
    if faults[0].setting == ACCESS:
        told = "; ".join(map(str, faults))
        raise AccessError(f"this user may not do what the {role or 'job'} does: {told}; {GRANTING}")
    missing = [fault.topic for fault in faults if _is_missing(fault)]
    parts = [f"missing {', '.join(missing)}"] if missing else []
    parts += [str(fault) for fault in faults if not _is_missing(fault)]
    stuck = any(not _can_be_mended(fault) for fault in faults)
    fix = "delete that topic, or choose another prefix" if stuck else CREATE_TOPICS
    raise TopicsError(f"the topics are not as the job needs them: {'; '.join(parts)}; {fix}")


def _is_missing(fault: Fault) -> bool:
    return fault.setting is None and fault.found == "missing"


def _can_be_mended(fault: Fault) -> bool:
    """Settings can be changed and topics made; partitions cannot be taken away."""
    return fault.setting is not None or _is_missing(fault)


@contextmanager
def _admin(client: Mapping[str, Any]) -> Iterator[tuple[AdminClient, Complaints]]:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
    from spu_assigner.stream.kafka.connection_diagnosis import Complaints

    complaints = Complaints()
    try:
        # What goes wrong is told once, by an exception, and not by librdkafka's log as well.
        opened = AdminClient({"log_level": 0, "error_cb": complaints.note, **client})
    except KafkaException as reason:
        raise TopicsError(f"Kafka's client refuses its settings: {_words(reason)}") from reason
    with opened as admin:
        yield admin, complaints


def _require_sight(
    admin: AdminClient, client: Mapping[str, Any], complaints: Complaints, names: Sequence[str]
) -> None:
    from confluent_kafka import KafkaException
    from spu_assigner.stream.kafka.access import hidden

    present = _present(admin, client, complaints)
    try:
        unseen = hidden(admin, [name for name in names if name not in present])
    except KafkaException as reason:
        raise TopicsError(f"the topics could not be described: {_words(reason)}") from reason
    if unseen:
        raise AccessError(f"this user may not Describe {', '.join(unseen)}; {GRANTING}")


def _present(
    admin: AdminClient, client: Mapping[str, Any], complaints: Complaints
) -> Mapping[str, TopicMetadata]:
    """The topics that are there, as far as this user may see them."""
    from spu_assigner.stream.kafka.connection_diagnosis import UnreachableError, ask_topics

    try:
        present: Mapping[str, TopicMetadata] = ask_topics(admin, client, complaints).topics
    except UnreachableError as reason:
        raise TopicsError(str(reason)) from reason
    return present


def _faults(
    admin: AdminClient,
    client: Mapping[str, Any],
    complaints: Complaints,
    names: Mapping[str, TopicSpec],
) -> tuple[Fault, ...]:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import ConfigResource

    present = _present(admin, client, complaints)
    resources = {
        name: ConfigResource(ConfigResource.Type.TOPIC, name) for name in names if name in present
    }
    described = admin.describe_configs(list(resources.values())) if resources else {}
    unknown = KafkaError.UNKNOWN_TOPIC_OR_PART  # one broker knows a new topic before another
    faults: list[Fault] = []
    for name, spec in names.items():
        settings: Any = _REFUSED
        if name in present:
            future = described[resources[name]]
            settings = _result(future, f"{name} could not be described", unless=unknown)
        if settings is _REFUSED:
            faults.append(Fault(topic=name, found="missing", expected="a topic"))
            continue
        count = len(present[name].partitions)
        if spec.single and count != 1:
            faults.append(Fault(topic=name, found=f"in {count} partitions", expected="1 partition"))
        faults += wrong_settings(name, spec, {key: settings[key].value for key in spec.required})
    return tuple(faults)


def wrong_settings(name: str, spec: TopicSpec, found: Mapping[str, str]) -> Sequence[Fault]:
    """Which of the required settings are not as they must be."""
    return [
        Fault(topic=name, setting=setting, found=found[setting], expected=expected)
        for setting, expected in spec.required.items()
        if not _satisfies(setting, found=found[setting], expected=expected)
    ]


def _satisfies(setting: str, *, found: str, expected: str) -> bool:
    if setting == "max.message.bytes":
        return int(found) >= int(expected)
    return found == expected


def _result(future: Any, failed: str, *, unless: int | None = None) -> Any:
    """The result of an admin request, its error as ours; _REFUSED for the one error expected."""
    from confluent_kafka import KafkaException

    try:
        return future.result(timeout=REQUEST_SECONDS_MAX)
    except KafkaException as reason:
        if unless is not None and reason.args[0].code() == unless:
            return _REFUSED
        raise TopicsError(f"{failed}: {_words(reason)}") from reason
    except TimeoutError as reason:
        raise TopicsError(f"{failed} within {REQUEST_SECONDS_MAX:.0f} s") from reason


def _words(reason: Exception) -> str:
    """librdkafka's own sentence, without its wrapping."""
    first = reason.args[0] if reason.args else reason
    return str(first.str()) if hasattr(first, "str") else str(first) or type(reason).__name__
