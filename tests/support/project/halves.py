"""All tests in two halves side by side: each has a broker and a Spark of its own, and waits a lot.

    python tests/support/project/halves.py [pytest's options …]

The second half's output is shown live, the first one's when both have ended. Exit status: 0 when
both passed. On one core the halves follow each other.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[2]
FIRST = "test_[a-eg-j]*.py"  # of tests/broker: half the time; `f` shares brokers with the others


def files() -> tuple[list[Path], list[Path]]:
    """The test files of the first half and of the second."""
    first = set((TESTS / "broker").rglob(FIRST))
    return sorted(first), sorted(set(TESTS.rglob("test_*.py")) - first)


def main(options: list[str]) -> int:
    pytest = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    first, second = ([*pytest, *map(str, half)] for half in files())
    with tempfile.TemporaryFile() as said:
        with subprocess.Popen(first, stdout=said, stderr=subprocess.STDOUT) as half:
            if (os.cpu_count() or 1) < 2:
                half.wait()
            statuses = [subprocess.call(second)]
            statuses.append(half.wait())
        said.seek(0)
        print(said.read().decode(errors="replace"), flush=True)
    for name, status in zip(("second", "first"), statuses, strict=True):
        if status < 0:  # It had no time to say so itself.
            print(f"the {name} half was ended by {signal.Signals(-status).name}", flush=True)
    return 0 if not any(statuses) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
