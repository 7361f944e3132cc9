"""How long a broker is waited for, by answers of a client that no real broker gives on demand."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from spu_assigner.stream.kafka.retry import ask_leaders


class Forgetful:
    """A client that refuses a partition by memory, as librdkafka does, until it looks again."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.asked = self.looks = 0
        self.looks_needed = 1

    def list_topics(self, *, timeout: float) -> None:
        assert timeout > 0
        self.looks += 1
        if self.looks < self.looks_needed:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def ends(self, left: float) -> tuple[int, int]:
        assert 0 < left <= 0.25 * 2**self.asked  # what is lost is not waited for long
        self.asked += 1
        if self.looks < self.looks_needed:
            raise KafkaException(KafkaError(self.code))
        return 3, 7


@pytest.mark.parametrize("looks_needed", [1, 3])
def test_leaders_are_requested_again_before_they_are_asked_again(looks_needed: int) -> None:
    client = Forgetful(KafkaError._UNKNOWN_PARTITION)
    client.looks_needed = looks_needed
    assert ask_leaders(client, client.ends, seconds=30.0) == (3, 7)
    assert (client.asked, client.looks) == (looks_needed + 1, looks_needed)


@pytest.mark.parametrize(
    ("code", "is_final"),
    [(KafkaError.TOPIC_AUTHORIZATION_FAILED, True), (KafkaError._UNKNOWN_PARTITION, False)],
)
def test_a_refusal_is_raised_at_once_or_when_time_is_up(code: int, is_final: bool) -> None:
    """What is not permitted will not be; a leader may be elected yet."""
    client: Any = Forgetful(code)
    client.looks_needed = 10**9
    with pytest.raises(KafkaException) as caught:
        ask_leaders(client, client.ends, seconds=30.0 if is_final else 0.3)
    assert caught.value.args[0].code() == code
    assert (client.asked == 1) == is_final
    assert (client.looks == 0) == is_final
