"""How even failovers are: each SPU and each rack fails, and others lead what it led.

    python tests/bench/decisions/failover.py [--write]

By policy the most that one of the others takes over beyond its fair share, and that share where it
is largest. The fair share divides what the failed led equally by the SPUs on other racks. The first
cluster is that of Fluvio's documents ("SPUs on racks a and b may get overwhelmed"). `exact` is the
least that any order of the followers in the lists of `balanced` gives, found by HiGHS, which knows
all topics in advance and weighs SPUs and racks together; `exact in turn` orders topic after topic,
as `balanced` has to: each as good as it can be beside those before. With --write it goes to
`results/failover.json`.
"""

from __future__ import annotations

import math
import sys
from collections import Counter, defaultdict
from pathlib import Path
from random import Random
from typing import Any, Final

import highspy
import numpy as np
from spu_assigner.core.base.events import Policy, SpuJoined, TopicCreate
from spu_assigner.core.decision.machine import step
from spu_assigner.core.state.cluster_state import ClusterState
from spu_assigner.core.whatif.failure import FailureAnalysis

sys.path.insert(0, str(Path(__file__).parents[2]))  # for `support`, as pytest does
from support.bench.figures import keep, parser_of, say

PLACERS: Final = ("fluvio", "kafka", "kraft", "redpanda", "balanced")
DOCUMENTS: Final = "abbccc"
THREE: Final = "abc" * 21
UNEVEN: Final = "a" * 50 + "b" * 30 + "c" * 20
CASES: Final[dict[str, tuple[str, list[int]]]] = {
    "documents' 6 SPUs, 6 x 3": (DOCUMENTS, [6]),
    "documents' 6 SPUs, 60 x 3": (DOCUMENTS, [60]),
    "documents' 6 SPUs, 100 topics of 6 x 3": (DOCUMENTS, [6] * 100),
    "63 SPUs, 3 racks, 1,000 topics of 16 x 3": (THREE, [16] * 1_000),
    "100 SPUs, racks of 50, 30, 20, 1,000 topics of 10 x 3": (UNEVEN, [10] * 1_000),
    "6 SPUs without racks, 100 topics of 6 x 3": ("-" * 6, [6] * 100),
    "64 SPUs without racks, 1,000 topics of 16 x 3": ("-" * 64, [16] * 1_000),
    "63 SPUs, 3 racks, 5,000 x 3": (THREE, [5_000]),
    "100 SPUs, racks of 50, 30, 20, 5,000 x 3": (UNEVEN, [5_000]),
    "64 SPUs without racks, 5,000 x 3": ("-" * 64, [5_000]),
}


def filled(placer: str, racks: str, topics: list[int]) -> ClusterState:
    state = ClusterState("c")
    placed_by = Policy(placer)
    shuffled = racks if len(racks) == len(DOCUMENTS) else Random(3).sample(racks, len(racks))
    for spu_id, rack in enumerate(shuffled):
        joined = SpuJoined(
            event_id=f"j{spu_id}",
            cluster_id="c",
            spu_id=spu_id,
            capacity=10**6,
            rack=None if rack == "-" else rack,
        )
        step(state, joined, default_policy=placed_by)
    for number, partitions in enumerate(topics):
        asked = TopicCreate(
            event_id=f"e{number}",
            cluster_id="c",
            topic=f"t{number}",
            partitions=partitions,
            replication_factor=3,
        )
        step(state, asked, default_policy=placed_by)
    return state


def unevenness(state: ClusterState) -> dict[str, dict[str, float]]:
    """Of the failures of SPUs and of racks."""
    analysis = FailureAnalysis(state)
    names = np.array([rack or f"-{number}" for number, rack in enumerate(analysis.racks)])
    single = [np.array([number], dtype=np.int32) for number in range(len(names))]
    racks = [np.flatnonzero(names == rack).astype(np.int32) for rack in np.unique(names)]
    found = {}
    for kind, failures in {"SPU": single, "rack": racks}.items():
        if kind == "rack" and len(racks) == len(single):
            continue
        beyond, fair = [0.0], [0.0]
        for failed in failures:
            others = ~np.isin(names, names[failed])
            more = (analysis.outcome(analysis.ids[failed]).leaders - analysis.leaders)[others]
            share = int(analysis.leaders[failed].sum()) / int(others.sum())
            beyond.append(float(more.max()) - share)
            fair.append(share)
        found[kind] = {"beyond_fair": round(max(beyond), 2), "fair": round(max(fair), 2)}
    return found


def racks_of(state: ClusterState) -> tuple[dict[int, str | None], dict[object, int]]:
    """The rack of each SPU, and how many SPUs are on others than each rack."""
    racks: dict[int, str | None] = {spu_id: spu.rack for spu_id, spu in state.spus.items()}
    return racks, {rack: sum(each != rack for each in racks.values()) for rack in racks.values()}


def exact(state: ClusterState) -> float:
    """The least that the worst SPU takes over beyond its fair share, whoever follows whom.

    Each list gives one unit to a follower on another rack, which goes to the pair of leader and
    follower and on to the pair of the leader's rack and follower: a flow, so whole limits have a
    whole solution wherever they have one.
    """
    racks, outside = racks_of(state)
    led: Counter[object] = Counter()
    taken: dict[tuple[object, int], list[Any]] = defaultdict(list)
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    for topic in state.topics.values():
        for leader, *others in topic.replicas.lists().tolist():
            led.update((leader, racks[leader]))
            heirs = [each for each in others if racks[each] != racks[leader]]
            units = [highs.addVariable(lb=0, ub=1) for _ in heirs]
            highs.addConstr(sum(units) == 1)
            for heir, unit in zip(heirs, units, strict=True):
                taken[leader, heir].append(unit)
                taken[racks[leader], heir].append(unit)
    fair = {who: led[who] / outside[racks.get(who, who)] for who in led}
    sums = {pair: highs.addConstr(sum(units) <= len(units)) for pair, units in taken.items()}
    # Only there does the whole part of a share and what is beyond it change.
    for beyond in sorted(
        {extra + math.ceil(each) - each for each in fair.values() for extra in range(10)}
    ):
        for (who, _), row in sums.items():
            highs.changeRowBounds(
                row.index, -highspy.kHighsInf, math.floor(fair[who] + beyond + 1e-9)
            )
        highs.run()
        if highs.getModelStatus() == highspy.HighsModelStatus.kOptimal:
            return round(beyond, 2)
    raise ValueError("no order is within ten of the fair share")


def exact_in_turn(state: ClusterState) -> dict[str, float]:
    """The same of SPUs and racks where each topic is ordered by HiGHS as it comes, for good.

    A unit that is taken over costs more the more there is beyond the fair share already, eight
    times for each unit: so the largest decides. The flow has whole solutions here, too.
    """
    racks, outside = racks_of(state)
    led: Counter[object] = Counter()
    taken: Counter[tuple[object, int]] = Counter()

    def beyond(who: object, heir: int, more: int = 0) -> float:
        return taken[who, heir] + more - led[who] / outside[racks.get(who, who)]

    for topic in state.topics.values():
        lists = topic.replicas.lists().tolist()
        led.update(who for leader, *_ in lists for who in (leader, racks[leader]))
        highs = highspy.Highs()
        highs.setOptionValue("output_flag", False)
        units: list[tuple[int, int, Any]] = []
        given: dict[tuple[object, int], list[Any]] = defaultdict(list)
        for leader, *others in lists:
            heirs = [each for each in others if racks[each] != racks[leader]]
            added = [(leader, heir, highs.addVariable(lb=0, ub=1)) for heir in heirs]
            highs.addConstr(sum(unit for _, _, unit in added) == 1)
            units += added
        for leader, heir, unit in units:
            given[leader, heir].append(unit)
            given[racks[leader], heir].append(unit)
        for (who, heir), each in given.items():
            steps = [
                highs.addVariable(lb=0, ub=1, obj=8 ** max(beyond(who, heir, more), -6.0))
                for more in range(1, len(each) + 1)
            ]
            highs.addConstr(sum(each) - sum(steps) == 0)
        highs.run()
        values = highs.getSolution().col_value
        for leader, heir, unit in units:
            chosen = round(values[unit.index])
            taken.update({(leader, heir): chosen, (racks[leader], heir): chosen})
    worst = {"SPU": 0.0, "rack": 0.0}
    for who, heir in taken:
        kind = "SPU" if who in racks else "rack"
        worst[kind] = max(worst[kind], round(beyond(who, heir), 2))
    return worst


def main() -> None:
    """Measure each placer on each cluster."""
    options = parser_of(__doc__).parse_args()
    figures: dict[str, Any] = {}
    for name, (racks, topics) in CASES.items():
        for placer in PLACERS:
            state = filled(placer, racks, topics)
            figures.setdefault(name, {})[placer] = found = unevenness(state)
            say(f"{name}: {placer}: {found}")
        if len({*racks}) > 1:
            figures[name]["exact"] = exact(state)
            figures[name]["exact in turn"] = exact_in_turn(state)
            say(f"{name}: {figures[name]['exact']}, in turn {figures[name]['exact in turn']}")
    if options.write:
        keep("failover", sizes={"replicas": 3}, figures=figures, show=False)


if __name__ == "__main__":
    main()
