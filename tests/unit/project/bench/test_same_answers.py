"""The check that the neighbours' figures rest on: no answer missing, twice, or another."""

from __future__ import annotations

import pytest
from spu_assigner.core.base.events import Policy
from support.job.same_answers import WrongAnswerError, check, expected_maps

TOTAL = 60


class Answer:
    """A message as a consumer gives it."""

    def __init__(self, key: bytes, value: bytes) -> None:
        self.key = lambda: key
        self.value = lambda: value


def answers(expected: dict[bytes, bytes]) -> list[Answer]:
    return [Answer(key, value) for key, value in expected.items()]


def test_the_cores_own_answers_pass_in_any_order() -> None:
    """Partitions are read one after the other."""
    expected = expected_maps(Policy.FLUVIO, TOTAL, reasons=False)
    assert len(expected) == TOTAL
    check(reversed(answers(expected)), expected, by_value=False)  # type: ignore[arg-type]


def test_a_missing_repeated_or_other_answer_is_found() -> None:
    """Each kind alone, or a figure could stand on wrong work."""
    expected = expected_maps(Policy.FLUVIO, TOTAL, reasons=False)
    with_reasons = expected_maps(Policy.FLUVIO, TOTAL, reasons=True)
    right = answers(expected)
    other = [*answers(with_reasons)[:1], *right[1:]]
    for given, message in (
        (right[1:], "1 wrong answers; the first: no answer b'c0/t0'"),
        ([*right, right[7]], "1 wrong answers; the first: b'c7/t7' came twice"),
        (other, "1 wrong answers; the first: b'c0/t0' is ReplicaMap"),
    ):
        with pytest.raises(WrongAnswerError, match=message):
            check(given, expected, by_value=False)  # type: ignore[arg-type]
