"""`make run` in a fresh clone: from nothing to the first map, network apart.

    python tests/bench/scale/first_start.py [--write]

Packages and jars are in the caches, and no environment, no wheel and no archive of Spark's classes
is there: what is measured is set-up, broker, Spark and the first batch. Seconds since `make` was
started, by what was printed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.bench.figures import keep, parser_of, say, spread

ROOT: Final = Path(__file__).resolve().parents[3]
RUNS: Final = 3
STEPS: Final = {
    "packages": "the wheel, made",
    "set_up": "Kafka broker at",
    "Spark_started": "Spark started",
    "query_started": "query started",
    "first_map": "every message is answered",
}


def measure(folder: Path) -> dict[str, float]:
    """One clone; set-up finds no environment that is active."""
    subprocess.run(["git", "clone", "-q", ROOT, folder], check=True)
    paths = os.environ["PATH"].split(os.pathsep)
    path = os.pathsep.join(each for each in paths if ".venv" not in each)
    environ = {**os.environ, "PATH": path, "PYTHONPATH": ""}
    make, reached = ["make", "run", "ONCE=1"], dict[str, float]()
    begun = time.monotonic()
    with subprocess.Popen(make, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True) as run:
        for line in run.stdout or ():
            for step, said in STEPS.items():
                if said in line:
                    reached.setdefault(step, round(time.monotonic() - begun, 1))
    if run.returncode:
        raise RuntimeError(f"make run ended with status {run.returncode}")
    return reached


def main() -> None:
    options = parser_of(__doc__).parse_args()
    with tempfile.TemporaryDirectory(prefix="spu-assigner-first-start-") as folder:
        runs = [measure(Path(folder) / str(number)) for number in range(RUNS)]
    figures = {step: spread([each[step] for each in runs]) for step in STEPS}
    say(f"  {figures}")
    if options.write:
        keep("first_start", sizes={"runs": RUNS}, figures={"make run": figures}, show=False)


if __name__ == "__main__":
    main()
