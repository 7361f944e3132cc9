"""Instructions, as valgrind counts them: the same in each run, however busy the machine is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence

VALGRIND = shutil.which("valgrind")  # a package of each Linux distribution; no bench needs it


def each(command: Callable[[int], Sequence[str]], *, few: int, many: int) -> float:
    """What one more of something takes: a run with many of them less one with few.

    Args:
        command: a program of Python that does so many.
        few: of the run whose instructions are taken off, start and set-up among them.
        many: of the other.
    """
    return (count(command(many)) - count(command(few))) / (many - few)


def count(command: Sequence[str]) -> int:
    """Of a program of Python, from its start to its end."""
    if VALGRIND is None:
        raise FileNotFoundError("valgrind is not found; its package has this name everywhere")
    # What would differ from run to run: hashes of strings, and numpy's threads.
    settings = {**os.environ, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
    settings.pop("PYTHONDONTWRITEBYTECODE", None)
    # Once without valgrind, which compiles what is not compiled yet.
    subprocess.run(command, check=True, env=settings, stdout=subprocess.DEVNULL)
    counter = [
        VALGRIND,
        "--tool=cachegrind",
        "--cache-sim=no",
        f"--cachegrind-out-file={os.devnull}",
    ]
    done = subprocess.run(
        [*counter, *command], capture_output=True, text=True, check=True, env=settings
    )
    found = re.search(r"I +refs: +([\d,]+)", done.stderr)
    if found is None:
        raise ValueError(f"valgrind named no count of instructions; it said:\n{done.stderr}")
    return int(found[1].replace(",", ""))
