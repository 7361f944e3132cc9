"""Runs `make test` again and again, and keeps what each run gave: a flaky test shows its name.

    python tests/soak/repeat.py --times 10

Every run counts, whatever it gave. Exit status: 0 when no test failed in any run, else 1.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.bench import figures

ROOT: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = Path(__file__).with_name("results")
PASSED: Final = re.compile(r"(\d+) passed")
FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(description="Run `make test` again and again.")
    parser.add_argument("--times", type=int, default=10)
    times = parser.parse_args().times
    runs, failed = list[dict[str, object]](), Counter[str]()
    for number in range(1, times + 1):
        begun = time.monotonic()
        ended = subprocess.run(
            ["make", "test"], check=False, cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        passed = PASSED.search(ended.stdout)
        runs.append(
            {
                "status": ended.returncode,
                "passed": int(passed[1]) if passed else 0,
                "seconds": round(time.monotonic() - begun),
            }
        )
        failed.update(FAILED.findall(ended.stdout))
        print(f"{number} of {times}: {runs[-1]}", *failed, flush=True)
        found = {"runs": runs, "failed": dict(failed)}  # kept after each: the rest may not come
        figures.keep("repeat", sizes={"times": number}, figures=found, show=False, folder=RESULTS)
    return 0 if all(run["status"] == 0 for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
