"""`spu-assigner doctor`: the topics, compared with what the job needs, and for risks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource
from spu_assigner.stream.audit.doctor.broker_checks import Broker, Rights, topics_of
from spu_assigner.stream.audit.doctor.checks import Check, Unchecked
from spu_assigner.stream.common.printable import listed
from spu_assigner.stream.kafka.topic_admin import wrong_settings
from spu_assigner.stream.kafka.topics import TOPICS, TopicSpec, topic_name

DAY_MS: Final = 24 * 60 * 60 * 1000
NAMES_MAX: Final = 3

_SEES: Final = frozenset({"Read", "Write", "Describe", "AlterConfigs"})
_SEES_SETTINGS: Final = frozenset({"DescribeConfigs", "AlterConfigs"})
_HAS_GONE: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED)


def check_topics(check: Check, *, broker: Broker, rights: Rights) -> frozenset[str]:
    """The topics that the role uses; returns those that exist."""
    role, prefix = check.target.role, broker.connection.prefix
    specs = {topic_name(spec.name, prefix=prefix): spec for spec in TOPICS}
    names = topics_of(role, _SEES, prefix=prefix)
    there = [name for name in names if name in broker.topics]
    given = f" --topic-prefix {prefix}" if prefix else ""
    create = f"run `spu-assigner topics create{given}`"
    for name in names:
        if name in rights.hidden:
            check.left_out.append(f"{name}: this user may not see it")
        elif name not in there and specs[name].is_applys:
            check.left_out.append(f"{name}: not there yet; the first `apply` creates it")
        elif name not in there:
            check.report("D302", f"{name} is missing", create)
    seen = {*topics_of(role, _SEES_SETTINGS, prefix=prefix)}
    settings = _settings(check, broker, [name for name in there if name in seen])
    for name in there:
        found = settings.get(name)
        _check_partitions(check, broker, name, specs[name], found)
        if found is not None:
            _check_settings(check, name, specs[name], found, create=create)
    check.summary = f"{len(there)} of {len(names)} there, settings of {len(settings)} checked"
    return frozenset(there)


def _settings(check: Check, broker: Broker, names: list[str]) -> dict[str, dict[str, str]]:
    """The settings of those topics that report them."""
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    if not resources:
        return {}
    futures = broker.admin.describe_configs(resources, request_timeout=check.seconds_left)
    found: dict[str, dict[str, str]] = {}
    for resource, future in futures.items():
        try:
            entries = future.result()
        except KafkaException as reason:
            if reason.args[0].code() not in _HAS_GONE:
                said = f"Kafka does not report settings: {reason.args[0].str()}"
                check.report("D214", said)
                raise Unchecked("Kafka does not report settings") from reason
            check.left_out.append(f"the settings of {resource.name}: {reason.args[0].str()}")
        else:
            found[resource.name] = {key: entry.value for key, entry in entries.items()}
    return found


def _check_partitions(
    check: Check,
    broker: Broker,
    name: str,
    spec: TopicSpec,
    settings: Mapping[str, str] | None,
) -> None:
    """Where its partitions are, and how many replicas are in sync."""
    parts = broker.topics[name].partitions
    if spec.single and len(parts) != 1:
        check.report("D303", f"{name} is in {len(parts)} partitions, expected 1")
    if away := [number for number, part in sorted(parts.items()) if part.leader < 0]:
        check.report("D305", f"{name}: {_some(away)} without a leader")
    replicas = min((len(part.replicas) for part in parts.values()), default=0)
    if replicas == 1 and broker.brokers > 1:
        check.report("D308", f"{name} has 1 replica, and there are {broker.brokers} brokers")
    if settings is None:
        return
    least = int(settings["min.insync.replicas"])
    short = [
        number
        for number, part in sorted(parts.items())
        if part.leader >= 0 and len(part.isrs) < least
    ]
    if short:
        check.report(
            "D306",
            f"{name}: {_some(short)} with fewer replicas in sync than min.insync.replicas, {least}",
        )
    elif least > 1 and replicas == least:
        said = f"{name} has {replicas} replicas, and min.insync.replicas is {least}"
        check.report("D307", said)


def _check_settings(
    check: Check, name: str, spec: TopicSpec, found: Mapping[str, str], *, create: str
) -> None:
    for fault in wrong_settings(name, spec, {key: found[key] for key in spec.required}):
        check.report("D304", str(fault), f"{create}, which sets it")
    if spec.is_input and 0 <= int(found["retention.ms"]) < DAY_MS:
        hours = int(found["retention.ms"]) / 3_600_000
        check.report("D309", f"{name} keeps its messages for {hours:,.1f} h, better 24 h and more")
    if found.get("unclean.leader.election.enable") == "true":
        check.report("D310", f"{name}: unclean.leader.election.enable is true, expected false")


def _some(numbers: list[int]) -> str:
    word = "partition" if len(numbers) == 1 else "partitions"
    return f"{word} {listed(numbers, NAMES_MAX)}"
