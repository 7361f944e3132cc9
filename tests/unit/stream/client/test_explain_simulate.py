"""`spu-assigner simulate --explain`: the contract's lines, with reasons between them."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import pytest
from spu_assigner.core.base.constraints import Constraints, Preference
from spu_assigner.core.base.events import Event, LeaveMode, Policy
from spu_assigner.schemas.json_lines.lines import event_to_json
from spu_assigner.stream.client.simulate import answer_lines
from spu_assigner.stream.job.run.demo import Example, examples
from support.events.builders import Events

EXAMPLES = examples()


def simulated(events: Sequence[Event], *, explain: bool) -> list[dict[str, Any]]:
    given = "".join(f"{event_to_json(event)}\n" for event in events).encode()
    target = io.BytesIO()
    assert answer_lines(io.BytesIO(given), target, Policy.FLUVIO, explain=explain) == 0
    return [json.loads(line) for line in target.getvalue().splitlines()]


@pytest.mark.parametrize("example", EXAMPLES, ids=[each.cluster_id for each in EXAMPLES])
def test_every_list_of_the_documents_is_explained_by_placing_it_again(example: Example) -> None:
    """Each map is followed by its partitions in order; without them the contract's lines remain."""
    events = [step.event for step in example.steps if not isinstance(step.event, bytes)]
    lines = simulated(events, explain=True)
    for number, line in enumerate(lines):
        if line["type"] != "replica_map" or line["replicas"] is None:
            continue
        first = line["reason"]["first_partition"]  # of a topic that grew: those before stay
        explained = lines[number + 1 : number + 1 + len(line["replicas"]) - first]
        assert [each["type"] for each in explained] == ["explanation"] * len(explained)
        assert [each["partition"] for each in explained] == list(
            range(first, first + len(explained))
        )
        assert [each["replicas"] for each in explained] == line["replicas"][first:]
        assert [each["recomputed"] for each in explained] == [line["policy"] != "manual"] * len(
            explained
        )
        assert [each["unknown"] for each in explained] == [[]] * len(explained)
        on_cores = [[taken["core"] for taken in each["steps"]] for each in explained]
        assert line["cores"] is None or on_cores == line["cores"]
    plain = [
        {name: value for name, value in line.items() if name != "reason"}
        for line in lines
        if line["type"] != "explanation"
    ]
    assert plain == simulated(events, explain=False)


def test_a_list_is_reported_in_words_that_can_be_followed() -> None:
    """The numbers of the sentence are those of the rule."""
    events = Events()
    joins = [*events.joins(0, 1, 2, 3, 4, 5), events.leave(5)]
    lines = simulated([*joins, events.create("t", 7, 3)], explain=True)
    [explained] = [line for line in lines if line.get("partition") == 6]
    assert explained["text"].split("; ") == [
        "fluvio without racks",
        "ring of 5 by id, chain index 6: cycle 1, position 1, gap 1",
        "leader   SPU 1: position 1",
        "follower SPU 3: position 3 = (1 + 1 + gap 1) % 5",
        "follower SPU 4: position 4 = (1 + 2 + gap 1) % 5",
        "not in the ring: SPU 5, offline",
        "repeated for this answer: the same comes out",
    ]


def test_a_repair_is_reported_in_words_with_the_shares_that_decided() -> None:
    """Who went, who came, and how much each held then."""
    events = Events()
    joins = events.racks({"a": [0], "b": [1, 2], "c": [3]}, capacity=10)
    manual = [events.manual("t", [1, 0]), events.manual("u", [3])]
    leave = events.leave(1, mode=LeaveMode.DECOMMISSION)
    explained = simulated([*joins, *manual, leave], explain=True)
    [repair] = [line for line in explained if line.get("mode") == "repair"]
    assert repair["text"].split("; ") == [
        "repair of what a decommission took away",
        "before: [1, 0]",
        "SPU 1 is decommissioned, SPU 2 comes: SPU 1 held 1 of 10, SPU 2 held 0 of 10",
        "SPU 0 leads now instead of SPU 1",
        "not in the ring: SPU 1, leaving",
    ]
    assert repair["replicas"] == [0, 2]


def test_a_demand_is_explained_by_the_dominant_shares() -> None:
    """What each SPU had used, what the replica makes of it, who had no room, and which rules."""
    events = Events()
    has = {"cores": 100, "disk": 300}
    joins = events.racks({"a": [0], "b": [1], "c": [2]}, capacity=10, resources=has)
    full = events.manual("full", [2], demand={"disk": 290})
    create = events.create(
        "t",
        1,
        2,
        policy=Policy.BALANCED,
        demand={"disk": 20},
        leader_demand={"cores": 30},
        constraints=Constraints(prefer=(Preference("rack=b", 7),)),
    )
    explained = simulated([*joins, full, create], explain=True)
    [placed] = [line for line in explained if line.get("topic") == "t" and "text" in line]
    assert placed["text"].split("; ") == [
        "balanced over the SPUs that the constraints permit",
        "ring of 3, chain index of the step 0: it decides between equals",
        "leader   SPU 0: rack a, held 0 of 10, dominant share 0.0%, "
        "with this replica 30.0% (cores 0 + 30 of 100)",
        "follower SPU 1: rack b, held 0 of 10, dominant share 0.0%, "
        "with this replica 10.0% of slots",
        "rule spread over 'rack': 2 values, 1 replicas on one",
        "rule prefer: the list scores 7",
        "rule demand: 1 has less than 20 of disk free",
    ]
    assert [f"rule {rule}" for rule in placed["rules"]] == placed["text"].split("; ")[-3:]
    assert placed["shares"][0] == {
        "spu_id": 0,
        "count": 0,
        "capacity": 10,
        "amounts": [
            {"resource": "cores", "used": 0, "capacity": 100, "needed": 30},
            {"resource": "disk", "used": 0, "capacity": 300, "needed": 20},
        ],
    }
    [by_hand] = [line for line in explained if line.get("topic") == "full" and "text" in line]
    assert by_hand["shares"] == []
