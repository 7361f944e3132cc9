"""Create the product's topics, and check them before a command relies on them.

The job checks its own topics at its start, so that a missing one is one line and no stack trace.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)
from spu_assigner.stream.kafka.acls import ANY_TOPIC, Resource, Role, acls
from spu_assigner.stream.kafka.connection_diagnosis import DiagnosedAdmin, WaitLimits
from spu_assigner.stream.kafka.errors import (
    CREATE_TOPICS,
    GRANTING,
    POLL_SECONDS,
    REQUEST_SECONDS_MAX,
    AccessError,
    ClientError,
    TopicsError,
    admin_result,
    granting,
)
from spu_assigner.stream.kafka.topics import JOB_TOPICS, PARTITIONS, TOPICS, TopicSpec, topic_name

ACCESS: Final = "access"  # a fault of the user's rights; no setting of Kafka's has this name
SEEN_SECONDS_MAX: Final = 1.0  # a topic that was just made is seen by then
LOOK_SECONDS: Final = 0.02  # between looks whether a change is seen
_LATE: Final = f"still so after {REQUEST_SECONDS_MAX:.0f} s: check that all of Kafka's brokers run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong with a topic."""

    topic: str  # with the prefix
    setting: str | None = None  # None: the topic itself, or its partitions; ACCESS: the rights
    found: str
    expected: str

    def __str__(self) -> str:
        what = f"{self.topic}: {self.setting}" if self.setting else self.topic
        return f"{what} is {self.found}, expected {self.expected}"

    @property
    def is_missing(self) -> bool:
        """Whether the topic does not exist."""
        return self.setting is None and self.found == "missing"

    @property
    def can_be_fixed(self) -> bool:
        """Settings can be changed and topics created; partitions cannot be taken away."""
        return self.setting is not None or self.is_missing


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """What `create_topics` did, by full name."""

    created: tuple[str, ...]
    repaired: tuple[str, ...]
    unchanged: tuple[str, ...]


def create_topics(
    client: Mapping[str, Any],
    *,
    prefix: str = "",
    partitions: int = PARTITIONS,
    replication_factor: int = -1,
) -> TopicReport:
    """Create the topics that are missing, fix required settings of the others; safe to repeat."""
    names = {topic_name(spec.name, prefix=prefix): spec for spec in TOPICS}
    created: set[str] = set()
    repaired: set[str] = set()
    with DiagnosedAdmin(client) as admin:
        present = admin.metadata().topics
        if unseen := hidden(admin, [name for name in names if name not in present]):
            raise AccessError(f"this user may not Describe {', '.join(unseen)}; {GRANTING}")
        deadline = time.monotonic() + REQUEST_SECONDS_MAX
        # Kafka's controller answers before its brokers know: look again until all is well.
        while faults := topic_faults(admin, names):
            if stuck := [fault for fault in faults if not fault.can_be_fixed]:
                raise TopicsError(f"{stuck[0]}; delete the topic, or choose another prefix")
            if time.monotonic() > deadline:
                raise TopicsError(f"{faults[0]}; {_LATE}")
            faults = [fault for fault in faults if fault.topic not in created]
            missing = {fault.topic: names[fault.topic] for fault in faults if fault.is_missing}
            created |= create_missing(
                admin, missing, partitions=partitions, replication_factor=replication_factor
            )
            repaired |= _fix(admin, [fault for fault in faults if not fault.is_missing])
            time.sleep(LOOK_SECONDS)
    return TopicReport(
        created=tuple(name for name in names if name in created),
        repaired=tuple(name for name in names if name in repaired),
        unchanged=tuple(name for name in names if name not in created | repaired),
    )


def make_seen(admin: DiagnosedAdmin, name: str, *, prefix: str) -> None:
    """Create one of the product's topics, and wait until it is seen."""
    (spec,) = (spec for spec in TOPICS if spec.name == name)
    full = topic_name(name, prefix=prefix)
    deadline = time.monotonic() + REQUEST_SECONDS_MAX
    create_missing(admin, {full: spec})
    while full not in admin.metadata().topics:
        if time.monotonic() > deadline:
            raise TopicsError(f"{full} was made, and is not seen; {_LATE}")
        time.sleep(LOOK_SECONDS)


def create_missing(
    admin: AdminClient,
    specs: Mapping[str, TopicSpec],
    *,
    partitions: int = 1,
    replication_factor: int = -1,
) -> set[str]:
    """Create these topics; the names of those that no other process created meanwhile."""
    topics = [
        NewTopic(
            name,
            num_partitions=1 if spec.single else partitions,
            replication_factor=replication_factor,
            config={**spec.required, **spec.tuning},
        )
        for name, spec in specs.items()
    ]
    created = set()
    for name, future in (admin.create_topics(topics) if topics else {}).items():
        try:
            admin_result(future, f"{name} could not be created")
            created.add(name)
        except ClientError as reason:
            if reason.code != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    return created


def _fix(admin: AdminClient, faults: Sequence[Fault]) -> set[str]:
    """Set the settings that are wrong; the topics' names."""
    resources: dict[str, ConfigResource] = {}
    for fault in faults:
        resource = ConfigResource(ConfigResource.Type.TOPIC, fault.topic)
        resources.setdefault(fault.topic, resource).add_incremental_config(
            ConfigEntry(fault.setting, fault.expected, incremental_operation=AlterConfigOpType.SET)
        )
    altered = admin.incremental_alter_configs([*resources.values()]) if resources else {}
    for resource, future in altered.items():
        admin_result(future, f"the settings of {resource.name} could not be changed")
    return set(resources)


def find_faults(client: Mapping[str, Any], *, prefix: str = "") -> Sequence[Fault]:
    """What is wrong with the topics, in the table's order; empty when the job can start.

    Where rights of the job are missing nothing else is reported: it may be hidden from this user.
    """
    names = {topic_name(spec.name, prefix=prefix): spec for spec in JOB_TOPICS}
    with DiagnosedAdmin(client) as admin:
        admin.metadata()  # reports best why no broker answers
        return access_faults(admin, Role.JOB, prefix=prefix) or topic_faults(admin, names)


def access_faults(admin: AdminClient, role: Role, *, prefix: str) -> Sequence[Fault]:
    """The rights to topics that the role needs and this user lacks.

    Without topics that are not there, those that maps name, and optional rights.
    """
    needed: dict[str, list[str]] = {}
    for acl in acls(role, prefix=prefix, with_optional=False):
        if acl.resource is Resource.TOPIC and acl.name != ANY_TOPIC:
            needed.setdefault(acl.name, []).append(acl.operation)
    return [
        Fault(
            topic=name,
            setting=ACCESS,
            found=", ".join(sorted(allowed)) or "none",
            expected=", ".join(needed[name]),
        )
        for name, allowed in allowed_operations(admin, list(needed)).items()
        if allowed is not None and not {*needed[name]} <= {*allowed}
    ]


def require_access(admin: AdminClient, role: Role, *, prefix: str) -> None:
    """Return if this user has the rights to topics that the role needs."""
    if faults := access_faults(admin, role, prefix=prefix):
        raise AccessError(
            f"this user may not do what the {role} does: {'; '.join(map(str, faults))}; "
            f"{granting(role)}"
        )


def topic_faults(admin: DiagnosedAdmin, names: Mapping[str, TopicSpec]) -> Sequence[Fault]:
    """What is wrong with topics, by their names in Kafka."""
    present = admin.metadata().topics
    resources = [
        ConfigResource(ConfigResource.Type.TOPIC, name) for name in names if name in present
    ]
    found: dict[str, Any] = {}
    for resource, future in (admin.describe_configs(resources) if resources else {}).items():
        try:
            found[resource.name] = admin_result(future, f"{resource.name} could not be described")
        except ClientError as reason:
            # One broker knows a new topic before another.
            if reason.code != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
    faults: list[Fault] = []
    for name, spec in names.items():
        if name not in found:
            faults.append(Fault(topic=name, found="missing", expected="a topic"))
            continue
        count = len(present[name].partitions)
        if spec.single and count != 1:
            faults.append(Fault(topic=name, found=f"in {count} partitions", expected="1 partition"))
        for key, expected in spec.required.items():
            value = found[name][key].value
            is_larger = key == "max.message.bytes" and int(value) > int(expected)  # is well, too
            if value != expected and not is_larger:
                faults.append(Fault(topic=name, setting=key, found=value, expected=expected))
    return faults


def partition_counts(
    client: Mapping[str, Any], names: Sequence[str], *, prefix: str = ""
) -> dict[str, int]:
    """How many partitions these topics have, by their whole names."""
    with DiagnosedAdmin(client) as admin:
        return require_topics(admin, names, prefix=prefix)


def require_topics(admin: DiagnosedAdmin, names: Iterable[str], *, prefix: str) -> dict[str, int]:
    """The number of partitions of each of these topics, by their whole names; all must be there."""
    full = [topic_name(name, prefix=prefix) for name in names]
    deadline = time.monotonic() + SEEN_SECONDS_MAX
    while True:
        found = admin.metadata().topics
        missing = [name for name in full if name not in found or not found[name].partitions]
        if not missing:
            return {name: len(found[name].partitions) for name in full}
        if time.monotonic() > deadline:
            if denied := hidden(admin, missing):
                raise AccessError(f"this user may not use {', '.join(denied)}; {GRANTING}")
            raise TopicsError(f"missing topics {', '.join(missing)}; {CREATE_TOPICS}")
        time.sleep(POLL_SECONDS)


def check_topics(
    client: Mapping[str, Any],
    *,
    prefix: str = "",
    role: Role = Role.JOB,
    limits: WaitLimits | None = None,
) -> None:
    """Return if the job can start, or the role, if another is given, can do its work."""
    names = {topic_name(spec.name, prefix=prefix): spec for spec in JOB_TOPICS}
    with DiagnosedAdmin(client) as admin:
        admin.metadata(limits)  # first, as in `find_faults`
        require_access(admin, role, prefix=prefix)
        faults = topic_faults(admin, names)
    if not faults:
        return
    missing = [fault.topic for fault in faults if fault.is_missing]
    parts = [f"missing {', '.join(missing)}"] if missing else []
    parts += [str(fault) for fault in faults if not fault.is_missing]
    stuck = any(not fault.can_be_fixed for fault in faults)
    fix = "delete that topic, or choose another prefix" if stuck else CREATE_TOPICS
    raise TopicsError(f"the topics are not as the job needs them: {'; '.join(parts)}; {fix}")


def hidden(admin: AdminClient, names: Sequence[str]) -> list[str]:
    """Those of the topics that this client may not even see, be they there or not."""
    return [name for name, allowed in allowed_operations(admin, names).items() if allowed == []]


def may_write(admin: AdminClient, topic: str) -> bool | None:
    """Whether this client may write to a topic; None: it is not there, or not known."""
    allowed = allowed_operations(admin, [topic])[topic]
    return None if allowed is None else "Write" in allowed


def allowed_operations(admin: AdminClient, names: Sequence[str]) -> dict[str, list[str] | None]:
    """What may be done with each topic; None: it is not there, or the broker does not report it."""
    if not names:
        return {}
    futures = admin.describe_topics(
        TopicCollection(list(names)),
        include_authorized_operations=True,
        request_timeout=REQUEST_SECONDS_MAX,
    )
    allowed: dict[str, list[str] | None] = {}
    for name, future in futures.items():
        try:
            described = admin_result(future, f"{name} could not be described")
        except ClientError as reason:
            if reason.code not in _NOT_SHOWN:
                raise
            allowed[name] = _NOT_SHOWN[reason.code]
        else:  # DESCRIBE_CONFIGS is DescribeConfigs in the table of rights.
            operations = described.authorized_operations or ()
            allowed[name] = [each.name.title().replace("_", "") for each in operations] or None
    return allowed


_NOT_SHOWN: Final[Mapping[int | None, list[str] | None]] = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: [],
    KafkaError.UNKNOWN_TOPIC_OR_PART: None,
}
