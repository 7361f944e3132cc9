"""New lists of topics without a map, when a broker goes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.stream.clusters.drain.emptied_lists import emptied_lists
from spu_assigner.stream.clusters.moves.reassigning import Replicas
from spu_assigner.stream.kafka.log_dirs import Partition

RACKS: dict[int, str | None] = {1: "a", 2: "b", 3: "c", 4: "c"}


def test_a_replica_goes_to_the_rack_of_none_other_then_to_the_least_loaded() -> None:
    """As in a decommission; `u` is not asked about, and counts as load of 4, which is then as much
    as that of 3, but not of topic `__t`."""
    rows = {("__t", 0): (1, 2), ("__t", 1): (2, 3), ("u", 0): (4, 2)}
    assert emptied_lists(rows, ["__t"], brokers=RACKS, leaving=2) == (
        {("__t", 0): (1, 4), ("__t", 1): (3, 1)},
        [],
    )


def test_a_broker_that_is_away_gets_nothing_and_keeps_what_it_has() -> None:
    """Its replicas come back with it, and are the ones with the data."""
    rows = {("__t", 0): (2, 9), ("__t", 4): (9, 1)}
    found = emptied_lists(rows, ["__t"], brokers={1: None, 2: None}, leaving=2)
    assert found == ({("__t", 0): (9, 1)}, [])


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[Partition, Replicas], list[str]]:
    row = st.lists(st.integers(1, 5), min_size=1, max_size=4, unique=True).map(tuple)
    names = st.sampled_from(["__a", "__b", "c"])
    places = st.tuples(names, st.integers(0, 5))
    return draw(st.dictionaries(places, row)), draw(st.lists(names, unique=True))


@given(clusters(), st.integers(1, 5))
def test_only_the_brokers_replicas_move_and_no_list_gets_shorter(
    cluster: tuple[dict[Partition, Replicas], list[str]], leaving: int
) -> None:
    """Of these topics, each partition that it holds has a new list, or is named."""
    rows, topics = cluster
    brokers = dict.fromkeys(range(1, 6))
    found, stuck = emptied_lists(rows, topics, brokers=brokers, leaving=leaving)
    held = {at for at, row in rows.items() if at[0] in topics and leaving in row}
    assert {*found, *stuck} == held
    for at, row in found.items():
        assert len({*row}) == len(row) == len(rows[at])
        assert {*rows[at]} - {leaving} <= {*row}
        assert leaving not in row
    assert all(len(rows[at]) == len(brokers) for at in stuck)
