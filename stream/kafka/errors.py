"""Kafka's errors: how long a request may take, how a refusal is worded, what is raised.

Imports no client: commands read these names for their help.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, TypeVar

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.common.printable import listed, printable

if TYPE_CHECKING:
    from collections.abc import Collection

    from confluent_kafka import KafkaError

REQUEST_SECONDS_MAX: Final = 10.0  # a broker at hand answers in milliseconds
# librdkafka writes a fatal error to standard error by itself, whatever its level; the error is
# raised as well. A program that has log handlers gets the line, our own commands have none.
CLIENT_LOGGER: Final = logging.getLogger("spu_assigner.kafka")
CLIENT_LOGGER.addHandler(logging.NullHandler())

POLL_SECONDS: Final = 0.1  # Ctrl-C is seen between polls
CREATE_TOPICS: Final = "run `spu-assigner topics create`"

_T = TypeVar("_T")


def granting(role: str) -> str:
    """What to do where this role lacks a right."""
    return f"grant what `spu-assigner topics acls --role {role}` lists"


GRANTING: Final = "grant what `spu-assigner topics acls` lists"


class ClientError(AssignerError):
    """Kafka cannot be reached, or refuses a request."""

    def __init__(self, message: str, code: int | None = None) -> None:
        self.code = code  # Kafka's, where it refused
        super().__init__(message)


class RenewedError(ClientError):
    """What was read is no longer there."""


class TopicsError(ClientError):
    """The topics are not what the job needs."""


class AccessError(TopicsError):
    """Kafka's authorizer does not let this user do what the job, or a command, does."""


class ClusterUnknownError(AssignerError):
    """The outputs hold nothing of a cluster; the keys of those that were read begin with others."""

    def __init__(self, cluster_id: str, topic: str, keys: Collection[bytes]) -> None:
        self.cluster_id = cluster_id
        self.others = sorted({key.partition(b"/")[0].decode("utf-8", "replace") for key in keys})
        found, check = "no other", "that the job runs, that SPUs have joined, the brokers"
        if self.others:
            found, check = printable(listed(self.others)), "the name, the brokers"
        hint = "" if self.others else "; `spu-assigner adopt` takes over what a Kafka cluster has"
        super().__init__(
            f"no cluster {cluster_id!r} on {topic}; it has {found}; check {check} and the "
            f"prefix{hint}"
        )


def is_denied(error: KafkaError) -> bool:
    """Whether the user lacks a right: to a topic, a group, a transactional id or the cluster."""
    return str(error.name()).endswith("_AUTHORIZATION_FAILED")


def error_text(reason: KafkaError | BaseException) -> str:
    """The sentence of librdkafka without its wrapping, and what to do where a right is missing."""
    error = reason.args[0] if isinstance(reason, BaseException) and reason.args else reason
    if not hasattr(error, "str"):
        return str(error) or "no answer"
    return f"{error.str()}; {GRANTING}" if is_denied(error) else str(error.str())


def admin_result(future: Future[_T], failed: str) -> _T:
    """The result of an admin request, or a ClientError that `failed` begins, with Kafka's code."""
    from confluent_kafka import KafkaException

    try:
        return future.result(timeout=REQUEST_SECONDS_MAX)
    except KafkaException as reason:
        raise ClientError(f"{failed}: {error_text(reason)}", reason.args[0].code()) from reason
    except TimeoutError as reason:
        raise ClientError(f"{failed} within {REQUEST_SECONDS_MAX:.0f} s") from reason
