"""`spu-assigner simulate` from the start of its process to its end, beside a bare interpreter."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from spu_assigner.core.base.events import SpuJoined
from spu_assigner.schemas.json_lines.lines import event_to_json
from support.bench.figures import QUICK, keep, spread

ROUNDS: Final = 5 if QUICK else 15


def test_simulate_from_start_to_end(tmp_path: Path) -> None:
    """One event, as a user at a terminal would have it answered."""
    file = tmp_path / "events.jsonl"
    joined = SpuJoined(event_id="e1", cluster_id="c1", spu_id=0)
    file.write_text(event_to_json(joined) + "\n", encoding="utf-8")
    program = str(Path(sys.executable).with_name("spu-assigner"))
    commands = {
        "simulate_s": [program, "simulate", str(file)],
        "bare_python_s": [sys.executable, "-c", "pass"],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(ROUNDS + 1):
        for name, command in commands.items():
            begun = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            if number:  # The first run reads the files from disk.
                seconds[name].append(time.perf_counter() - begun)
    keep(
        "simulate",
        sizes={"events": 1, "byte_code_written": not sys.dont_write_bytecode},
        figures={name: spread(values) for name, values in seconds.items()},
    )
