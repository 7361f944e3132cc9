"""`spu-assigner lint` on 1,000 events, from the start of its process to its end.

A cluster of 64 SPUs in three racks joins and is asked for 936 topics of 3 partitions with 3
replicas, or of 16; byte code is there, as after any installation.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from spu_assigner.core.base.events import Event, SpuJoined, TopicCreate
from spu_assigner.schemas.json_lines.lines import event_to_json
from support.bench.figures import QUICK, keep, spread

ROUNDS: Final = 5 if QUICK else 40
SPUS: Final = 64
EVENTS: Final = 1_000


def events_of(partitions: int) -> list[Event]:
    """A file as somebody would write it."""
    joins: list[Event] = [
        SpuJoined(event_id=f"j{spu_id}", cluster_id="c1", spu_id=spu_id, rack="abc"[spu_id % 3])
        for spu_id in range(SPUS)
    ]
    creates = [
        TopicCreate(
            event_id=f"t{number}",
            cluster_id="c1",
            topic=f"topic-{number}",
            partitions=partitions,
            replication_factor=3,
        )
        for number in range(EVENTS - SPUS)
    ]
    return [*joins, *creates]


def test_lint_of_a_thousand_events_from_start_to_end(tmp_path: Path) -> None:
    """As a hook before a commit would wait for it."""
    environ = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path / "byte-code")}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    program = str(Path(sys.executable).with_name("spu-assigner"))
    commands = {"bare_python_s": [sys.executable, "-c", "pass"]}
    for partitions in (3, 16):
        file = tmp_path / f"{partitions}.jsonl"
        lines = "".join(f"{event_to_json(event)}\n" for event in events_of(partitions))
        file.write_text(lines, encoding="utf-8")
        commands[f"lint_{partitions}_partitions_s"] = [program, "lint", str(file)]
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(ROUNDS + 1):
        for name, command in commands.items():
            begun = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True, env=environ)
            if number:  # The first run reads the files from disk, and writes byte code.
                seconds[name].append(time.perf_counter() - begun)
    keep(
        "lint",
        sizes={"events": EVENTS, "spus": SPUS},
        figures={
            name: spread(values) | {"p95": round(sorted(values)[-(len(values) // 20) - 1], 3)}
            for name, values in seconds.items()
        },
    )
