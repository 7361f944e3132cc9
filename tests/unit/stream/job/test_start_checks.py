"""The list of what a start checks: what is checked before Spark, and what stops a job."""

from __future__ import annotations

from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, KafkaException
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.job import start_checks
from spu_assigner.stream.job.marker import PrefixTakenError
from spu_assigner.stream.job.start_checks import (
    MARKER,
    START_CHECKS,
    StartLook,
    check_early,
    make,
    require,
)
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.errors import ClientError, TopicsError

SETTINGS = Settings.load(environ={}, flags={"checkpoint": "/c"})


def noted(monkeypatch: pytest.MonkeyPatch, fails: str = "") -> list[str]:
    """The names of the checks that are made; one of them fails."""
    made: list[str] = []

    def look(name: str) -> str:
        made.append(name)
        if name == fails:
            raise TopicsError("missing")
        return ""

    checks = tuple(
        replace(each, look=lambda _, name=each.name: look(name)) for each in START_CHECKS
    )
    monkeypatch.setattr(start_checks, "START_CHECKS", checks)
    monkeypatch.setattr(start_checks, "INPUT", checks[-1])
    return made


def test_before_spark_all_is_checked_that_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to be read next is known when the transactional id is taken, and not before."""
    made = noted(monkeypatch)
    check_early(SETTINGS)
    assert made == ["java", "metrics", "kafka", "checkpoint", "marker"]
    del made[:]
    check_early(replace(SETTINGS, checkpoint="hdfs://host/c"))
    assert made == ["java", "metrics", "kafka"]


def test_a_job_stops_at_the_first_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """With that error; nothing after it is looked at."""
    made = noted(monkeypatch, fails="kafka")
    with pytest.raises(TopicsError):
        check_early(SETTINGS)
    assert made == ["java", "metrics", "kafka"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KafkaException(KafkaError(KafkaError._TIMED_OUT)), ClientError),
        (PrefixTakenError(topic="t", query="q", other="o"), PrefixTakenError),
    ],
)
def test_a_marker_that_is_not_known_refuses_nothing(
    error: Exception, kind: type[AssignerError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink asks again, and is the authority; one of another query refuses the job."""

    def read(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(start_checks, "read_marker", read)
    look = StartLook(settings=SETTINGS)
    with pytest.raises(kind):
        make(MARKER, look)
    if kind is ClientError:
        require(MARKER, look)
    else:
        with pytest.raises(kind):
            require(MARKER, look)
