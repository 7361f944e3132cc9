"""`spu-assigner doctor`: whether a broker answers, and what this user may do there.

Nothing is made or changed: no topic, no group, no producer's id.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from spu_assigner.stream.config.connection import Connection, address
from spu_assigner.stream.config.settings import Settings
from spu_assigner.stream.doctor.api_versions import Abilities, ask_abilities
from spu_assigner.stream.doctor.check_runner import Check, Unchecked
from spu_assigner.stream.doctor.finding import DoctorRule
from spu_assigner.stream.doctor.kafka_rules import (
    BROKER_OLD,
    BROKER_REFUSES,
    CLOCK,
    PLAIN_NETWORK,
    RIGHT_MISSING,
    SILENT,
    SOME_UNREACHABLE,
    TLS_AUTHORITY,
    TLS_CLIENT,
    TLS_EXPIRED,
    TLS_HOST,
    TLS_NEEDED,
    TLS_NONE,
    UNREACHABLE,
    USER_REFUSED,
)
from spu_assigner.stream.kafka.access import hidden, missing_rights
from spu_assigner.stream.kafka.acls import ANY_TOPIC, Resource, Role, acls
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

_RULES: Final[Mapping[ConnectionRefusal, DoctorRule]] = {
    ConnectionRefusal.USER: USER_REFUSED,
    ConnectionRefusal.HOST: TLS_HOST,
    ConnectionRefusal.EXPIRED: TLS_EXPIRED,
    ConnectionRefusal.AUTHORITY: TLS_AUTHORITY,
    ConnectionRefusal.NO_TLS: TLS_NONE,
    ConnectionRefusal.CLIENT: TLS_CLIENT,
    ConnectionRefusal.TLS: TLS_NEEDED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker that answers."""

    connection: Connection
    admin: AdminClient
    topics: Mapping[str, Any]  # those that this user may see, as the client describes them
    brokers: int

    def name(self, topic: str) -> str:
        """A topic's in Kafka."""
        return topic_name(topic, prefix=self.connection.prefix)

    def close(self) -> None:
        """Ask no more."""
        self.admin.__exit__(None, None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What is known of the user's."""

    hidden: frozenset[str]  # topics, by their whole names, that are there or not
    lacking: frozenset[str]  # that some right is missing to


def check_broker(check: Check[Any], settings: Settings) -> Broker:
    """Connect as every client of the product does.

    Raises:
        Unchecked: no broker answers.
    """
    connection = settings.connection()
    client = connection.client()
    servers = [_host_and_port(each) for each in address(client).split(",")]
    _check_encryption(check, connection, [host for host, _ in servers])
    refused = _connect_to(servers, min(CONNECT_SECONDS_MAX, check.seconds_left / 3))
    told = "; ".join(f"{server}: {reason}" for server, reason in refused.items())
    if len(refused) == len({*servers}):
        check.tell(UNREACHABLE, f"no broker can be connected to ({told})")
        raise Unchecked("no broker answers")
    if refused:
        check.tell(SOME_UNREACHABLE, f"not to be connected to: {told}")
    left = check.seconds_left
    limits = WaitLimits(
        request=0.4 * left, refused=min(ABOUT_A_SECOND, 0.2 * left), probe=min(2.0, 0.2 * left)
    )
    admin = DiagnosedAdmin(client)
    with ExitStack() as unless_whole:
        unless_whole.enter_context(admin)
        try:
            found = admin.metadata(limits)
        except UnreachableError as reason:
            rule = SILENT if reason.refusal is None else _RULES[reason.refusal]
            check.tell(rule, str(reason).partition("; ")[0])
            raise Unchecked("no broker answers") from reason
        spoken = settings.security_protocol.value
        brokers = "1 broker" if len(found.brokers) == 1 else f"{len(found.brokers)} brokers"
        check.summary = f"{address(client)}, {brokers}, {spoken}"
        there = [each for each in servers if str(each) not in refused]
        _check_abilities(check, client, there[0])
        unless_whole.pop_all()
    return Broker(
        connection=connection, admin=admin, topics=found.topics, brokers=len(found.brokers)
    )


@dataclass(frozen=True, slots=True)
class _Server:
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def __iter__(self) -> Any:
        return iter((self.host, self.port))


def _host_and_port(server: str) -> _Server:
    host, _, port = server.rpartition(":")
    return _Server(host.strip("[]"), int(port))


def _connect_to(servers: Sequence[_Server], seconds: float) -> dict[str, str]:
    """Why servers cannot be connected to; all are tried at once."""
    refused: dict[str, str] = {str(each): f"no answer in {seconds:.1f} s" for each in servers}

    def connect(server: _Server) -> None:
        try:
            socket.create_connection((server.host, server.port), seconds).close()
        except TimeoutError:
            pass
        except socket.gaierror as reason:
            refused[str(server)] = host_not_found({server.host: reason.strerror or str(reason)})
        except OSError as reason:
            refused[str(server)] = reason.strerror or str(reason)
        else:
            refused.pop(str(server), None)

    # Daemons: a name server that is silent holds a thread for longer than anybody waits.
    threads = [threading.Thread(target=connect, args=(each,), daemon=True) for each in servers]
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()) + 0.1)
    return dict(refused)


def _check_encryption(check: Check[Any], connection: Connection, hosts: Sequence[str]) -> None:
    security = connection.security
    if security.protocol.has_tls:
        return
    away = [host for host in hosts if not _is_loopback(host)]
    if away:
        said = f"{security.protocol} to {', '.join(away)}: every message can be read on the way"
        check.tell(PLAIN_NETWORK, said)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_abilities(check: Check[Any], client: Mapping[str, Any], server: _Server) -> None:
    seconds = min(ABOUT_A_SECOND, check.seconds_left / 3)
    try:
        found = ask_abilities(client, server.host, server.port, seconds)
    except (OSError, ValueError) as reason:
        check.left_out.append(f"what {server} can do: {reason}")
        return
    if lacking := found.lacks():
        check.tell(BROKER_OLD, f"{server} does not know {', '.join(lacking)}")
    check.summary += _told_features(found)


def _told_features(found: Abilities) -> str:
    level = found.features.get("metadata.version")
    return "" if level is None else f", metadata.version {level}"


def check_rights(check: Check[Any], broker: Broker, role: Role, query: str) -> Rights:
    """Whether the user may do what the role does; topics that are missing come with the topics."""
    prefix = broker.connection.prefix
    wanted = acls(role, prefix=prefix, query_name=query, group="")
    topics = [acl.name for acl in wanted if acl.resource is Resource.TOPIC]
    names = list(dict.fromkeys(name for name in topics if name != ANY_TOPIC))
    try:
        lacking = missing_rights(broker.admin, role, prefix=prefix)
        unseen = hidden(broker.admin, [name for name in names if name not in broker.topics])
    except ClientError as reason:
        check.tell(BROKER_REFUSES, f"Kafka does not report rights: {reason}")
        raise Unchecked("Kafka does not tell rights") from reason
    user = broker.connection.security.username
    principal = f" --principal User:{user}" if user is not None else ""
    given = f" --topic-prefix {prefix}" if prefix else ""
    fix = f"grant what `spu-assigner topics acls --role {role}{principal}{given}` lists"
    for name, (found, needed) in lacking.items():
        check.tell(RIGHT_MISSING, f"{name}: this user has {found}, {role} needs {needed}", fix)
    check.summary = f"those of {role} on {len(names)} topics"
    # To ask for a transactional id is to take it, which would shut out a job that runs.
    others = {acl.resource: acl.name for acl in wanted if acl.resource is not Resource.TOPIC}
    if others:
        named = ", ".join(f"{resource} {name}" for resource, name in others.items())
        check.summary += f"; not those to {named}, which show when they are used"
    if ANY_TOPIC in topics:
        check.summary += "; not those to topics that maps name, which show when they are used"
    return Rights(hidden=frozenset(unseen), lacking=frozenset(lacking))


def check_clock(check: Check[Any], broker: Broker) -> None:
    """Whether input messages are later than now; an idle topic tells nothing."""
    places = [
        TopicPartition(name, number)
        for name in map(broker.name, INPUTS)
        if name in broker.topics
        for number in broker.topics[name].partitions
    ]
    if not places:
        raise Unchecked("there are no input topics to look at")
    try:
        futures = broker.admin.list_offsets(
            {place: OffsetSpec.max_timestamp() for place in places},
            request_timeout=check.seconds_left,
        )
        latest = max(future.result().timestamp for future in futures.values()) / 1000
    except KafkaException as reason:
        raise Unchecked(f"Kafka does not tell times: {reason.args[0].str()}") from reason
    ahead = latest - time.time()
    if ahead > CLOCK_SECONDS_MAX:
        check.tell(
            CLOCK,
            f"the last input message is {ahead / 60:,.0f} min later than this machine's clock",
        )
    check.summary = "held against the times of the input"


def topics_of(role: Role, operations: frozenset[str], *, prefix: str) -> list[str]:
    """The topics that a role has one of these rights to, by their whole names in the order."""
    wanted = {
        acl.name
        for acl in acls(role, prefix=prefix, query_name="", group="")
        if acl.resource is Resource.TOPIC and acl.operation in operations
    }
    names = (topic_name(spec.name, prefix=prefix) for spec in TOPICS)
    return [name for name in names if name in wanted]
