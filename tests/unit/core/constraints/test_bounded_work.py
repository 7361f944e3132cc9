"""What a request under rules may cost is counted, and has a limit."""

from __future__ import annotations

from functools import partial

import pytest
from spu_assigner.core.base.constraints import Constraints, SpreadLevel
from spu_assigner.core.base.errors import Code
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import Status
from spu_assigner.core.constraints.rule_table import topic_rules
from spu_assigner.core.constraints.work import SEARCH_STEPS_MAX, TooMuchWorkError, Work
from spu_assigner.core.decision import requests
from spu_assigner.core.placement.eligibility import ruled_field
from spu_assigner.core.placement.list_search import RuledRequest, conflict_of
from spu_assigner.core.placement.request import ListsRequest, place_lists
from spu_assigner.core.state.cluster_state import ClusterState
from support.events.one_cluster import OneCluster, the_status

# Of each group of SPUs one rule excludes all: only together do they exclude every SPU.
GROUPS = 16
EACH_GROUP = tuple(f"group!={group}" for group in range(GROUPS))
CROSSING = (SpreadLevel("feed", 1), SpreadLevel("host", 1), SpreadLevel("row", 1))


def cluster(spus: int, *, capacity: int = 1_000) -> OneCluster:
    life = OneCluster(default=Policy.BALANCED)
    for spu_id in range(spus):
        labels = {
            "group": str(spu_id % GROUPS),
            "feed": str(spu_id % 6),
            "host": str(spu_id // 2),
            "row": str(spu_id * spu_id % 50),
        }
        life.join(spu_id, labels=labels, capacity=capacity)
    return life


@pytest.mark.parametrize(
    ("spus", "constraints", "replicas"),
    [
        (64, Constraints(require=EACH_GROUP), 3),  # All subsets of them would be 65,536 looks.
        (1_000, Constraints(require=EACH_GROUP[1:], spread=CROSSING), 7),
    ],
)
def test_rules_that_only_conflict_together_are_found_in_bounded_steps(
    spus: int, constraints: Constraints, replicas: int
) -> None:
    rules = topic_rules(cluster(spus).state, "t", constraints, ignore_rack=False)
    request = RuledRequest(rules, dict.fromkeys(range(spus), 1_000), 1, replicas)
    assert request.fits(rules.hard) is False
    assert request.fits(conflict_of(request)) is not True
    assert request.steps > -SEARCH_STEPS_MAX  # a search ends with the last step, not before it


def test_a_request_that_takes_too_much_work_says_how_many_partitions_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requests, "Work", partial(Work, looks=20_000))
    life = cluster(100, capacity=1_000_000)
    rules = Constraints(spread=(SpreadLevel("host"),))
    refused = the_status(life.create("t", 100_000, 3, constraints=rules))
    assert (refused.status, refused.code) == (Status.REJECTED, Code.TOO_COMPLEX)
    _, text = (refused.message or "").split("ask for at most ")
    given = int(text.split()[0])
    assert the_status(life.create("t", given, 3, constraints=rules)).status is Status.ASSIGNED
    more = the_status(life.create("t2", given + 1, 3, constraints=rules))
    assert more.code is Code.TOO_COMPLEX


def test_what_is_counted_does_not_depend_on_what_is_kept_in_memory() -> None:
    """A replay, and a job that was started again, have to refuse the same requests."""
    rules = Constraints(spread=CROSSING[1:2])

    def given(state: ClusterState, looks: int) -> int:
        field = ruled_field(state, "t", rules, ignore_rack=True)
        asked = ListsRequest(1_000, 3, need=None, start=0, ignore_rack=True)
        with pytest.raises(TooMuchWorkError) as error:
            place_lists(state, field, asked, Work(looks=looks))
        return error.value.given

    cold, warm = cluster(100), cluster(100)
    for number in range(3):
        warm.create("t", 40, 3, constraints=rules, ignore_rack=True)
        warm.apply(warm.build.delete("t"))
        assert given(warm.state, 20_000 + number) == given(cold.state, 20_000 + number)
