"""`spu-assigner doctor`: whether a broker answers, and what this user may do there.

Nothing is created or changed: no topic, no group, no producer's id.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec
from spu_assigner.stream.audit.doctor.checks import Check, Unchecked
from spu_assigner.stream.common.printable import counted
from spu_assigner.stream.kafka.access import hidden, missing_options, missing_rights
from spu_assigner.stream.kafka.acls import ANY_TOPIC, Resource, Role, acls
from spu_assigner.stream.kafka.config.connection import Connection, address
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.connection_diagnosis import (
    ConnectionRefusal,
    DiagnosedAdmin,
    UnreachableError,
    WaitLimits,
    host_not_found,
)
from spu_assigner.stream.kafka.errors import ClientError
from spu_assigner.stream.kafka.topics import INPUTS, TOPICS, topic_name

CONNECT_SECONDS_MAX: Final = 1.5  # a host on another continent is 0.3 s away
ABOUT_A_SECOND: Final = 1.0
CLOCK_SECONDS_MAX: Final = 120.0  # that clocks may differ by

_CODES: Final[Mapping[ConnectionRefusal | None, str]] = {
    None: "D202",
    ConnectionRefusal.AUTHORITY: "D203",
    ConnectionRefusal.HOST: "D204",
    ConnectionRefusal.EXPIRED: "D205",
    ConnectionRefusal.NO_TLS: "D206",
    ConnectionRefusal.TLS: "D207",
    ConnectionRefusal.CLIENT: "D208",
    ConnectionRefusal.USER: "D209",
}
# Requests that the product needs, each with its least version (KIP-98, KIP-516).
_NEEDED: Final = {
    "InitProducerId": (1, "transactions"),
    "AddPartitionsToTxn": (1, "transactions"),
    "EndTxn": (1, "transactions"),
    "DescribeConfigs": (1, "settings of topics"),
    "Metadata": (10, "topic ids, Kafka 2.8"),
}

logging.getLogger("kafka").addHandler(logging.NullHandler())  # A failure is in the report.
logging.getLogger("kafka").propagate = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker that answers."""

    connection: Connection
    admin: DiagnosedAdmin
    topics: Mapping[str, Any]  # those that this user may see, as the client describes them
    brokers: int

    def name(self, topic: str) -> str:
        """A topic's in Kafka."""
        return topic_name(topic, prefix=self.connection.prefix)

    def close(self) -> None:
        """Ask no more."""
        self.admin.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What is known of the user's."""

    hidden: frozenset[str]  # topics, by their whole names, that are there or not
    lacking: frozenset[str]  # that some right is missing to


def check_broker(check: Check, *, settings: Settings) -> Broker:
    """Connect as every client of the product does."""
    if not check.target.is_broker_named:
        raise Unchecked(
            "no broker is named (--bootstrap-servers); `run` starts one of its own then"
        )
    connection = settings.connection()
    client = connection.client()
    servers = address(client).split(",")
    _check_encryption(check, connection, servers)
    patience = CONNECT_SECONDS_MAX * check.slowness
    refused = _connect_to(servers, min(patience, check.seconds_left / 3))
    reasons = "; ".join(f"{server}: {reason}" for server, reason in refused.items())
    if len(refused) == len({*servers}):
        check.report("D201", f"no broker can be connected to ({reasons})")
        raise Unchecked("no broker answers")
    if refused:
        check.report("D212", f"cannot be connected to: {reasons}")
    left = check.seconds_left
    limits = WaitLimits(
        request=0.4 * left,
        refused=min(ABOUT_A_SECOND * check.slowness, 0.2 * left),
        probe=min(2.0 * check.slowness, 0.2 * left),
    )
    with ExitStack() as on_failure:
        admin = on_failure.enter_context(DiagnosedAdmin(client))
        try:
            found = admin.metadata(limits)
        except UnreachableError as reason:
            check.report(_CODES[reason.refusal], str(reason).partition("; ")[0])
            raise Unchecked("no broker answers") from reason
        brokers = "1 broker" if len(found.brokers) == 1 else f"{len(found.brokers)} brokers"
        check.summary = f"{address(client)}, {brokers}, {settings.security.security_protocol.value}"
        _check_features(check, connection)
        on_failure.pop_all()
    return Broker(
        connection=connection, admin=admin, topics=found.topics, brokers=len(found.brokers)
    )


def _host_and_port(server: str) -> tuple[str, int]:
    host, _, port = server.rpartition(":")
    return host.strip("[]"), int(port)


def _connect_to(servers: Sequence[str], seconds: float) -> dict[str, str]:
    """Why servers cannot be connected to; all are tried at once."""
    refused = dict.fromkeys(servers, f"no answer in {seconds:.1f} s")

    def connect(server: str) -> None:
        host, port = _host_and_port(server)
        try:
            socket.create_connection((host, port), seconds).close()
        except TimeoutError:
            pass
        except socket.gaierror as reason:
            refused[server] = host_not_found({host: reason.strerror or str(reason)})
        except OSError as reason:
            refused[server] = reason.strerror or str(reason)
        else:
            refused.pop(server, None)

    # Daemons: a silent name server holds a thread for longer than anybody waits.
    threads = [threading.Thread(target=connect, args=(each,), daemon=True) for each in servers]
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()) + 0.1)
    return dict(refused)


def _check_encryption(check: Check, connection: Connection, servers: Sequence[str]) -> None:
    protocol = connection.security.security_protocol
    hosts = [host for host, _ in map(_host_and_port, servers) if not _is_loopback(host)]
    if hosts and not protocol.has_tls:
        check.report("D213", f"{protocol} to {', '.join(hosts)}: messages can be read on the way")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_features(check: Check, connection: Connection) -> None:
    """What the broker supports; kafka-python asks, since librdkafka does not report it."""
    from kafka.admin import KafkaAdminClient
    from kafka.errors import KafkaError

    limit_ms = int(1000 * min(ABOUT_A_SECOND * check.slowness, check.seconds_left / 3))
    try:
        client = KafkaAdminClient(
            request_timeout_ms=limit_ms, bootstrap_timeout_ms=limit_ms, **connection.kafka_python()
        )
        try:
            versions = {each.name: newest for each, (_, newest) in client.api_versions().items()}
            features = client.describe_features()
        finally:
            client.close()
    except (KafkaError, OSError, ValueError) as reason:  # ValueError: a broker it does not know.
        check.left_out.append(f"what the broker supports: {reason}")
        return
    lacking = [
        f"{name} version {least} ({use})"
        for name, (least, use) in _NEEDED.items()
        if versions.get(name, -1) < least
    ]
    if lacking:
        check.report("D210", f"the broker does not support {', '.join(lacking)}")
    if level := features.get("metadata.version", {}).get("finalized"):
        check.summary += f", metadata.version {level[1]}"


def check_rights(check: Check, *, broker: Broker, settings: Settings) -> Rights:
    """Whether the user may do what the role does; missing topics are reported by the topics."""
    role, prefix = check.target.role, broker.connection.prefix
    query = settings.query_name
    wanted = acls(role, prefix=prefix, query_name=query, group="", with_optional=False)
    topics = [acl.name for acl in wanted if acl.resource is Resource.TOPIC]
    names = list(dict.fromkeys(name for name in topics if name != ANY_TOPIC))
    try:
        lacking = missing_rights(broker.admin, role, prefix=prefix)
        options = missing_options(broker.admin, role, prefix=prefix)
        unseen = hidden(broker.admin, [name for name in names if name not in broker.topics])
    except ClientError as reason:
        check.report("D214", f"Kafka does not report rights: {reason}")
        raise Unchecked("Kafka does not report rights") from reason
    user = broker.connection.security.sasl_username
    principal = f" --principal User:{user}" if user is not None else ""
    given = f" --topic-prefix {prefix}" if prefix else ""
    fix = f"grant what `spu-assigner topics acls --role {role}{principal}{given}` lists"
    for name, (found, needed) in lacking.items():
        check.report("D301", f"{name}: this user has {found}, {role} needs {needed}", fix)
    check.summary = f"those of {role} on {counted(len(names), 'topic')}"
    for command, missing in options.items():
        check.summary += f"; without what {command} alone needs ({', '.join(missing)})"
    # To ask for a transactional id is to take it, which would shut out a job that runs.
    others = {acl.resource: acl.name for acl in wanted if acl.resource is not Resource.TOPIC}
    if others:
        named = ", ".join(f"{resource} {name}" for resource, name in others.items())
        check.summary += f"; not those to {named}, which show when they are used"
    if ANY_TOPIC in topics:
        check.summary += "; not those to topics that maps name, which show when they are used"
    return Rights(hidden=frozenset(unseen), lacking=frozenset(lacking))


def check_clock(check: Check, *, broker: Broker) -> None:
    """Whether input messages are later than now; nothing is known of an idle topic."""
    places = [
        TopicPartition(name, number)
        for name in map(broker.name, INPUTS)
        if name in broker.topics
        for number in broker.topics[name].partitions
    ]
    if not places:
        raise Unchecked("there are no input topics")
    try:
        futures = broker.admin.list_offsets(
            {place: OffsetSpec.max_timestamp() for place in places},
            request_timeout=check.seconds_left,
        )
        latest = max(future.result().timestamp for future in futures.values()) / 1000
    except KafkaException as reason:
        raise Unchecked(f"Kafka does not report times: {reason.args[0].str()}") from reason
    ahead = latest - time.time()
    if ahead > CLOCK_SECONDS_MAX:
        said = f"the last input message is {ahead / 60:,.0f} min later than this machine's clock"
        check.report("D211", said)
    check.summary = "not behind the times of the input"


def topics_of(role: Role, operations: frozenset[str], *, prefix: str) -> list[str]:
    """The topics that a role must have one of these rights to, by their whole names in order."""
    wanted = {
        acl.name
        for acl in acls(role, prefix=prefix, query_name="", group="", with_optional=False)
        if acl.resource is Resource.TOPIC and acl.operation in operations
    }
    names = (topic_name(spec.name, prefix=prefix) for spec in TOPICS)
    return [name for name in names if name in wanted]
