"""Replica lists written by hand: both forms, and every fault of shape with partition and value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.limits import PARTITIONS_MAX, REPLICATION_FACTOR_MAX, SPU_ID_MAX
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.policies.manual_lists import ManualFault, list_faults, read_lists

DEEP: list[Any] = []
for _ in range(50_000):
    DEEP = [DEEP]


def entries(*lists: Any) -> list[dict[str, Any]]:
    """The list form of these replica lists."""
    return [{"id": number, "replicas": replicas} for number, replicas in enumerate(lists)]


def fault_of(raw: object) -> ManualFault:
    with pytest.raises(ManualFault) as caught:
        read_lists(raw)
    return caught.value


@pytest.mark.parametrize(
    "lists",
    [
        [[0, 1, 2], [1, 2, 0]],
        [[0, SPU_ID_MAX]],
        [[*range(REPLICATION_FACTOR_MAX)]],
        [[1]] * PARTITIONS_MAX,
    ],
    ids=["documents 000 and 002", "first and last id", "longest list", "most partitions"],
)
def test_both_forms_of_the_documents_are_read(lists: list[list[int]]) -> None:
    """The documents differ in the form of the file; the limits themselves are legal."""
    for raw in (entries(*lists), {"partitions": entries(*lists)}):
        assert read_lists(raw) == ReplicaLists.of_lists(lists)


MALFORMED, IDS, INVALID = Code.MANUAL_MALFORMED, Code.MANUAL_PARTITION_IDS, Code.MANUAL_INVALID_SPU


@pytest.mark.parametrize(
    ("raw", "code", "reported"),
    [
        (None, MALFORMED, "None"),
        ({"partitions": [], "name": 1}, MALFORMED, "'name'"),
        ([], Code.INVALID_PARTITIONS, "0 partitions"),
        (entries(*[[1]] * (PARTITIONS_MAX + 1)), Code.INVALID_PARTITIONS, "100001 partitions"),
        ([*entries([0]), [1]], MALFORMED, "entry 1 is [1]"),
        ([{"id": 0, "replicas": [0], "rack": "a"}], MALFORMED, "'rack'"),
        ([{"id": 1, "replicas": [0]}], IDS, "id 1"),
        ([{"id": 0.0, "replicas": [0]}], IDS, "0.0"),
        (entries("01"), MALFORMED, "partition 0 has the replicas '01'"),
        (entries([0], []), Code.MANUAL_EMPTY_LIST, "partition 1"),
        (entries([*range(33)]), Code.INVALID_REPLICATION_FACTOR, "partition 0 has 33"),
        (entries([0, 1], [0]), Code.MANUAL_UNEVEN_LISTS, "partition 1 has 1"),
        (entries([0, 1], [4, 4]), Code.MANUAL_DUPLICATE_SPU, "partition 1 names SPU 4"),
        (entries([SPU_ID_MAX + 1]), INVALID, "2147483648"),
        # The first fault wins: in partition order, and within one as the contract lists them.
        (entries([0], [2, 2]), Code.MANUAL_UNEVEN_LISTS, "partition 1"),
    ],
)
def test_the_first_fault_is_named_with_partition_and_value(
    raw: object, code: Code, reported: str
) -> None:
    fault = fault_of(raw)
    assert fault.code is code
    assert reported in fault.message


@pytest.mark.parametrize(
    "raw",
    [
        DEEP,
        entries(DEEP),
        [{"id": DEEP, "replicas": [0]}],
        entries([10**6_000]),  # more digits than Python spells out
        entries(["x" * 1_000_000]),
        {"x" * 1_000_000: 1},
        {f"field {number}": 1 for number in range(10_000)},
    ],
    ids=["deep", "deep lists", "deep id", "digits", "text", "name", "names"],
)
def test_a_message_stays_short_whatever_came_in(raw: object) -> None:
    assert len(fault_of(raw).message) < 400


JSON_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["id", "replicas", "partitions", "x"]), inner, max_size=3),
    ),
    max_leaves=12,
)


@given(
    raw=st.one_of(
        JSON_VALUES,
        st.lists(st.lists(st.integers(-1, 4), max_size=3), max_size=4).map(lambda ls: entries(*ls)),
    )
)
def test_whatever_came_in_is_read_or_named(raw: object) -> None:
    if any(list_faults(raw)):
        assert fault_of(raw).message
        return
    lists = read_lists(raw).tolist()
    assert len({len(ids) for ids in lists}) == 1
    for ids in lists:
        assert len(set(ids)) == len(ids) > 0
        assert all(0 <= spu_id <= SPU_ID_MAX for spu_id in ids)
