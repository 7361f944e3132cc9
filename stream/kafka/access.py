"""What Kafka's authorizer lets this client do with topics.

Asked at the start, since a right may be missed late: to `dead-letter` the job writes only once a
message is bad, and a recovery has shut out the job by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient
from spu_assigner.stream.kafka.acls import ANY_TOPIC, Resource, Role, acls

if TYPE_CHECKING:
    from concurrent.futures import Future

REQUEST_SECONDS_MAX: Final = 10.0  # a broker at hand answers in milliseconds
_NAMES: Final = {
    AclOperation.READ: "Read",
    AclOperation.WRITE: "Write",
    AclOperation.CREATE: "Create",
    AclOperation.ALTER: "Alter",
    AclOperation.DELETE: "Delete",
    AclOperation.DESCRIBE: "Describe",
    AclOperation.DESCRIBE_CONFIGS: "DescribeConfigs",
    AclOperation.ALTER_CONFIGS: "AlterConfigs",
}


def missing_rights(admin: AdminClient, role: Role, *, prefix: str) -> dict[str, tuple[str, str]]:
    """By topic, where the role needs more than this client may: what it may, and what is needed.

    Topics that are not there are left out, and those that maps name, which are not known here.

    Raises:
        KafkaException: the broker does not answer.
    """
    needed: dict[str, list[str]] = {}
    for acl in acls(role, prefix=prefix, query_name="", group=""):
        if acl.resource is Resource.TOPIC and acl.name != ANY_TOPIC:
            needed.setdefault(acl.name, []).append(acl.operation)
    found: dict[str, tuple[str, str]] = {}
    for name, allowed in _allowed(admin, list(needed)).items():
        if allowed is not None and not set(needed[name]) <= set(allowed):
            found[name] = (", ".join(sorted(allowed)) or "none", ", ".join(needed[name]))
    return found


def hidden(admin: AdminClient, names: Sequence[str]) -> list[str]:
    """Those of the topics that this client may not even see, be they there or not.

    Raises:
        KafkaException: the broker does not answer.
    """
    allowed = _allowed(admin, names) if names else {}
    return [name for name in names if allowed[name] == []]


def may_write(admin: AdminClient, topic: str) -> bool | None:
    """Whether this client may write to a topic; None: it is not there, or not known.

    Raises:
        KafkaException: the broker does not answer.
    """
    allowed = _allowed(admin, [topic])[topic]
    return None if allowed is None else "Write" in allowed


def _allowed(admin: AdminClient, names: Sequence[str]) -> dict[str, list[str] | None]:
    """What may be done with each topic; None: it is not there, or the broker does not tell."""
    futures: Mapping[str, Future[Any]] = admin.describe_topics(
        TopicCollection(list(names)),
        include_authorized_operations=True,
        request_timeout=REQUEST_SECONDS_MAX,
    )
    allowed: dict[str, list[str] | None] = {}
    for name, future in futures.items():
        try:
            operations = future.result(timeout=REQUEST_SECONDS_MAX).authorized_operations
        except KafkaException as reason:
            code = reason.args[0].code()
            if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                allowed[name] = []
            elif code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                allowed[name] = None
            else:
                raise
        else:
            allowed[name] = [_NAMES[each] for each in operations or () if each in _NAMES] or None
    return allowed
