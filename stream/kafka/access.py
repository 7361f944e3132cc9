"""What Kafka's authorizer lets this client do with topics.

Asked at the start, since a right may be missed late: the job writes to `dead-letter` only once a
message is bad, and a recovery has shut out the job by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaError, TopicCollection
from confluent_kafka.admin import AdminClient
from spu_assigner.stream.kafka.acls import ANY_TOPIC, Resource, Role, acls
from spu_assigner.stream.kafka.errors import REQUEST_SECONDS_MAX, ClientError, admin_result


def missing_rights(admin: AdminClient, role: Role, *, prefix: str) -> dict[str, tuple[str, str]]:
    """By topic, where the role needs more than this client may: what it may, and what is needed.

    Without topics that are not there, those that maps name, and optional rights.
    """
    needed: dict[str, list[str]] = {}
    for acl in acls(role, prefix=prefix, with_optional=False):
        if acl.resource is Resource.TOPIC and acl.name != ANY_TOPIC:
            needed.setdefault(acl.name, []).append(acl.operation)
    return {
        name: (", ".join(sorted(allowed)) or "none", ", ".join(needed[name]))
        for name, allowed in allowed_operations(admin, list(needed)).items()
        if allowed is not None and not set(needed[name]) <= set(allowed)
    }


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
