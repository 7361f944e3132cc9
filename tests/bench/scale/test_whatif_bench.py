"""All single and double failures of a cluster of 1,000 SPUs with 1,000,000 partitions.

In 20 racks, 1,000 topics of 1,000 partitions with 3 replicas, placed by `balanced`; an SPU has
3,100 slots, so that a rack is more than the others have room for. Measured are the counting
alone, on a state that is at hand, the same where every pair of failures makes new leaders exceed
what there is of four resources, and the command from the start of its process to its end: from
events, whose topics it places first, and from the lines that `simulate` prints of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from spu_assigner.core.assigner import Assigner
from spu_assigner.core.base.events import Event, Policy, SpuJoined, TopicCreate
from spu_assigner.core.whatif.failure import FailureAnalysis
from spu_assigner.core.whatif.layout import layout_of_state
from spu_assigner.core.whatif.recreation import recreation
from spu_assigner.core.whatif.sweep import FailureSweep, sweep_pairs, sweep_racks, sweep_spus
from spu_assigner.schemas.json_lines.lines import event_to_json
from support.bench.figures import QUICK, keep, spread

ROUNDS: Final = 2 if QUICK else 7
SPUS: Final = 100 if QUICK else 1_000
TOPICS: Final = 100 if QUICK else 1_000
PARTITIONS: Final = 1_000  # of a topic
RACKS: Final = 20
RESOURCES: Final = 4
SLOTS: Final = 3_100  # of an SPU, which holds 3,000 replicas
SECONDS_MAX: Final = 10.0  # of all singles and pairs together, as the target says
SWEEPS: Final[dict[str, Callable[[FailureAnalysis], FailureSweep]]] = {
    "any_1_spu": sweep_spus,
    "any_2_spus": sweep_pairs,
    "any_1_rack": sweep_racks,
}


def events_of_cluster(*, resources: int = 0) -> list[Event]:
    """The cluster, as it comes to be; leaders need more than followers of so many resources."""
    names = [f"resource-{number}" for number in range(resources)]
    # Each SPU leads 1,000 and follows 2,000, so that one leader more is too many.
    has = dict.fromkeys(names, 1_000 * 9 + 2_000 * 5 + 3)
    joins: list[Event] = [
        SpuJoined(
            event_id=f"j{spu_id}",
            cluster_id="c1",
            spu_id=spu_id,
            rack=f"rack-{spu_id % RACKS:02}",
            capacity=SLOTS,
            resources=has or None,
        )
        for spu_id in range(SPUS)
    ]
    creates = [
        TopicCreate(
            event_id=f"t{number}",
            cluster_id="c1",
            topic=f"topic-{number}",
            partitions=PARTITIONS,
            replication_factor=3,
            demand=dict.fromkeys(names, 5) or None,
            leader_demand=dict.fromkeys(names, 9) or None,
        )
        for number in range(TOPICS)
    ]
    return [*joins, *creates]


def test_all_single_and_double_failures(tmp_path: Path) -> None:
    """Every case is counted, and the worst is dealt out replica by replica."""
    assigner = Assigner(Policy.BALANCED)
    events = events_of_cluster()
    for event in events:
        assigner.apply(event)
    state = assigner.clusters["c1"]
    seconds: dict[str, list[float]] = {}
    cases: dict[str, int] = {}
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        analysis = FailureAnalysis(layout_of_state(state))
        seconds.setdefault("layout_s", []).append(time.perf_counter() - begun)
        for name, swept in SWEEPS.items():
            begun = time.perf_counter()
            found = swept(analysis)
            recreation(analysis, analysis.outcome(found.failed))
            seconds.setdefault(f"{name}_s", []).append(time.perf_counter() - begun)
            cases[name] = found.cases
        parts = ("layout_s", "any_1_spu_s", "any_2_spus_s")
        whole = sum(seconds[name][-1] for name in parts)
        seconds.setdefault("singles_and_pairs_s", []).append(whole)
    assert cases == {"any_1_spu": SPUS, "any_2_spus": SPUS * (SPUS - 1) // 2, "any_1_rack": RACKS}
    assert QUICK or max(seconds["singles_and_pairs_s"]) <= SECONDS_MAX

    by_resources = Assigner(Policy.KAFKA)
    for event in events_of_cluster(resources=RESOURCES):
        by_resources.apply(event)
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        analysis = FailureAnalysis(layout_of_state(by_resources.clusters["c1"]))
        sweep_spus(analysis)
        found = sweep_pairs(analysis)
        seconds.setdefault("with_four_resources_s", []).append(time.perf_counter() - begun)
    assert QUICK or found.over_capacity > found.cases / 2
    assert QUICK or max(seconds["with_four_resources_s"]) <= SECONDS_MAX

    program = str(Path(sys.executable).with_name("spu-assigner"))
    lines, maps = tmp_path / "events.jsonl", tmp_path / "maps.jsonl"
    lines.write_text("".join(f"{event_to_json(each)}\n" for each in events), encoding="utf-8")
    with maps.open("wb") as target:
        subprocess.run([program, "simulate", str(lines)], check=True, stdout=target)
    for kind, file in (("events", lines), ("maps", maps)):
        command = [program, "whatif", f"--{kind}", str(file), "--fail", "any-2-spus", "--json"]
        for _ in range(min(ROUNDS, 5)):
            begun = time.perf_counter()
            done = subprocess.run(command, check=False, capture_output=True, env=os.environ)
            seconds.setdefault(f"command_from_{kind}_s", []).append(time.perf_counter() - begun)
            assert done.returncode in (0, 1), done.stderr
    keep(
        "whatif",
        sizes={
            "spus": SPUS,
            "partitions": TOPICS * PARTITIONS,
            "replicas_of_a_partition": 3,
            "racks": RACKS,
            "cases": cases,
        },
        figures={name: spread(values) for name, values in seconds.items()},
    )
