"""The list of what a start checks: what is checked before Spark, and what stops a job."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from confluent_kafka import KafkaError, KafkaException
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.job import start_checks
from spu_assigner.stream.job.marker import PrefixTakenError
from spu_assigner.stream.job.start_checks import (
    KAFKA,
    MARKER,
    StartCheck,
    StartLook,
    check_early,
    check_marker,
    make,
)
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.errors import ClientError, TopicsError

SETTINGS = Settings.load(environ={}, flags={"checkpoint": "/c"})


def test_a_job_stops_at_the_first_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """With that error; nothing after it is looked at, and nothing that needs Spark before it."""
    made: list[str] = []

    def make(check: StartCheck, _: StartLook) -> str:
        made.append(check.name)
        if fails and check is KAFKA:
            raise TopicsError("missing")
        return ""

    fails = False
    monkeypatch.setattr(start_checks, "make", make)
    check_early(SETTINGS)
    fails = True
    with pytest.raises(TopicsError):
        check_early(SETTINGS)
    assert made == 2 * ["java", "metrics", "kafka"]


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
    with nullcontext() if kind is ClientError else pytest.raises(kind):
        check_marker(look)
