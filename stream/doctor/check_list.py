"""Which checks `spu-assigner doctor` makes for a role, and which needs which."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from spu_assigner.stream.checkpoint.files import absolute, is_local
from spu_assigner.stream.checkpoint.local_files import local_path
from spu_assigner.stream.config.setting_spec import SettingsError
from spu_assigner.stream.config.settings import Settings
from spu_assigner.stream.doctor.check_runner import Check, Unchecked, run_all
from spu_assigner.stream.doctor.machine_checks import (
    check_disk,
    check_jars,
    check_java,
    check_packages,
    check_ports,
    check_python,
    written_places,
)
from spu_assigner.stream.doctor.rules import SETTINGS
from spu_assigner.stream.jvm.jars import Group
from spu_assigner.stream.kafka.acls import Role

if TYPE_CHECKING:
    from spu_assigner.stream.doctor.broker_checks import Broker, Rights
    from spu_assigner.stream.doctor.checkpoint_checks import FoundCheckpoint

WITH_SPARK: Final = (Role.JOB, Role.RECOVERER)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTarget:
    """What the checks are made of: settings, role, environment."""

    settings: Settings | SettingsError  # the error: they cannot be used
    is_broker_named: bool
    role: Role
    environ: Mapping[str, str]


def run_checks(target: CheckTarget, *, seconds: float) -> list[Check[Any]]:
    """Make all checks, side by side; they are given in the order to be told in."""
    check_run = _CheckRun(target, deadline=time.monotonic() + seconds)
    checks = run_all(check_run.checks())
    check_run.close()
    return checks


class _CheckRun:
    """The checks of one target."""

    def __init__(self, target: CheckTarget, *, deadline: float) -> None:
        self._target = target
        self._deadline = deadline
        self._checks: list[Check[Any]] = []
        self._settings: Check[Settings]
        self._broker: Check[Broker]
        self._rights: Check[Rights]
        self._topics: Check[frozenset[str]]
        self._checkpoint: Check[FoundCheckpoint]

    def checks(self) -> list[Check[Any]]:
        """All that the role asks for."""
        environ, role = self._target.environ, self._target.role
        is_job = role is Role.JOB
        self._settings = self._add("settings", self._check_settings)
        self._add("python", lambda check: check_python(check, environ, is_job=is_job))
        self._add("packages", check_packages)
        if role in WITH_SPARK:
            self._add("java", lambda check: check_java(check, environ))
            self._add("jars", lambda check: check_jars(check, environ, self._groups()))
            self._add("disk", self._check_disk)
        if is_job:
            self._add("ports", lambda check: check_ports(check, check.needs(self._settings)))
        self._broker = self._add("broker", self._check_broker)
        self._rights = self._add("rights", self._check_rights)
        self._topics = self._add("topics", self._check_topics)
        if is_job:
            self._add("clock", self._check_clock)
            self._checkpoint = self._add("checkpoint", self._check_checkpoint)
            self._add("marker", self._check_marker)
            self._add("input", self._check_input)
        return self._checks

    def close(self) -> None:
        """Let the broker go, unless a check that was not waited for may still ask it."""
        if not any(check.is_running for check in self._checks):
            for broker in self._broker.answers:
                broker.close()

    def _add(self, name: str, what: Any) -> Check[Any]:
        check: Check[Any] = Check(name, what, deadline=self._deadline)
        self._checks.append(check)
        return check

    def _groups(self) -> list[Group]:
        """The jars: of Spark, and of the broker that `run` starts where none is named."""
        own: list[Group] = ["spark-kafka", "spark-local"]
        return own if self._target.is_broker_named else [*own, "broker"]

    def _check_settings(self, check: Check[Any]) -> Settings:
        settings = self._target.settings
        if isinstance(settings, SettingsError):
            check.tell(SETTINGS, str(settings), f"correct {settings.source}")
            raise Unchecked("the settings cannot be used")
        check.summary = f"query {settings.query_name!r}, topic prefix {settings.topic_prefix!r}"
        return settings

    def _check_disk(self, check: Check[Any]) -> None:
        place = absolute(check.needs(self._settings).checkpoint)
        folder = local_path(place) if is_local(place) else None
        check_disk(check, written_places(self._target.environ, folder))

    # What imports Kafka's client or Avro is imported in a check: they are looked at themselves.

    def _check_broker(self, check: Check[Any]) -> Broker:
        settings = check.needs(self._settings)
        if not self._target.is_broker_named:
            raise Unchecked(
                "no broker is named (--bootstrap-servers); `run` starts one of its own then"
            )
        from spu_assigner.stream.doctor.broker_checks import check_broker

        return check_broker(check, settings)

    def _check_rights(self, check: Check[Any]) -> Rights:
        broker = check.needs(self._broker)
        from spu_assigner.stream.doctor.broker_checks import check_rights

        query = check.needs(self._settings).query_name
        return check_rights(check, broker, self._target.role, query)

    def _check_topics(self, check: Check[Any]) -> frozenset[str]:
        broker, rights = check.needs(self._broker), check.needs(self._rights)
        from spu_assigner.stream.doctor.topic_checks import check_topics

        return check_topics(check, broker, rights, self._target.role)

    def _check_clock(self, check: Check[Any]) -> None:
        broker = check.needs(self._broker)
        from spu_assigner.stream.doctor.broker_checks import check_clock

        check_clock(check, broker)

    def _check_checkpoint(self, check: Check[Any]) -> FoundCheckpoint:
        from spu_assigner.stream.doctor.checkpoint_checks import check_checkpoint

        return check_checkpoint(check, check.needs(self._settings))

    def _check_marker(self, check: Check[Any]) -> None:
        broker, rights = check.needs(self._broker), check.needs(self._rights)
        topics, found = check.needs(self._topics), check.needs(self._checkpoint)
        from spu_assigner.stream.doctor.marker_checks import check_marker
        from spu_assigner.stream.kafka.topics import ASSIGNER_COMMITS

        topic = broker.name(ASSIGNER_COMMITS)
        if topic in rights.lacking:
            raise Unchecked(f"this user may not read {topic}")
        if topic not in topics:
            raise Unchecked(f"{topic} is missing")
        check_marker(check, check.needs(self._settings), broker, found)

    def _check_input(self, check: Check[Any]) -> None:
        check.needs(self._broker)
        topics, found = check.needs(self._topics), check.needs(self._checkpoint)
        from spu_assigner.stream.doctor.marker_checks import check_input

        check_input(check, check.needs(self._settings), topics, found)
