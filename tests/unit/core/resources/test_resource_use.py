"""What is counted of resources: exact, however much it comes to."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from spu_assigner.core.base.limits import AMOUNT_MAX
from spu_assigner.core.base.replica_lists import ReplicaLists
from spu_assigner.core.base.resources import Need, amounts_of
from spu_assigner.core.state.ledger import Ledger

NAMES = ("cores", "disk", "net")
AMOUNTS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([1, 7, 2**32, AMOUNT_MAX]))
LISTS = st.lists(
    st.permutations([0, 3, 4, 500]).map(lambda ids: ids[:2]), min_size=1, max_size=3
).map(ReplicaLists.of_lists)
TOPICS = st.tuples(LISTS, AMOUNTS.filter(bool), AMOUNTS, st.booleans())


@given(st.lists(TOPICS, max_size=12))
def test_what_topics_need_is_added_and_taken_out_again_exactly(topics: list[tuple]) -> None:
    """As a plain dictionary counts it, beyond what 64 bits hold too."""
    use, plain = Ledger(), Counter[tuple[int, str]]()
    for lists, demand, leader_demand, is_gone in topics:
        need = Need(amounts_of(demand), amounts_of(leader_demand))
        use.enter(lists.flat())
        use.add(lists, need)
        if is_gone:
            use.subtract(lists, need)
            continue
        for row in lists.tolist():
            for place, spu_id in enumerate(row):
                for name, amount in ({**demand, **leader_demand} if not place else demand).items():
                    plain[spu_id, name] += amount
    names = ("disk", "none", "net", "cores")
    of_each = use.used_of_each(np.array([0, 2, 3, 500, 501], dtype=np.int32), names)
    for at, spu_id in enumerate([0, 2, 3, 500, 501]):
        expected = {name: plain[spu_id, name] for name in names if plain[spu_id, name]}
        assert dict(use.used(spu_id)) == expected
        assert of_each[:, at].tolist() == [float(expected.get(name, 0)) for name in names]
