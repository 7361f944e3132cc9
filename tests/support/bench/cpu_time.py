"""The CPU time of a job and of its broker: by process, and by thread."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spu_assigner.stream.local.broker.embedded import EmbeddedBroker
from support.bench.memory import BROKER, role_of
from support.job.programs import session

ENDED: Final = "threads that ended"
_TICK: Final = os.sysconf("SC_CLK_TCK")

Place = tuple[str, str]  # role of a process, name of a thread


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a piece of work took."""

    seconds: float
    cpu: Counter[Place]


def spent_so_far(processes: dict[int, str]) -> Counter[Place]:
    """CPU seconds of each thread, threads of like names together; of those that ended, as one."""
    found: Counter[Place] = Counter()
    for pid, role in processes.items():
        with suppress(OSError):
            _, whole = _name_and_seconds(Path(f"/proc/{pid}/stat"))
            for task in Path(f"/proc/{pid}/task").iterdir():
                with suppress(OSError):
                    name, seconds = _name_and_seconds(task / "stat")
                    found[role, name] += seconds
                    whole -= seconds
            found[role, ENDED] += whole
    return found


def _name_and_seconds(stat: Path) -> tuple[str, float]:
    text = stat.read_text(encoding="utf-8", errors="replace")
    begin, end = text.index("("), text.rindex(")")
    fields = text[end + 2 :].split()
    seconds = (int(fields[11]) + int(fields[12])) / _TICK
    return re.sub(r"[0-9]+", "N", text[begin + 1 : end]), seconds


def processes_of(job: subprocess.Popen[bytes], broker: EmbeddedBroker) -> dict[int, str]:
    """The job's processes and the broker's, with their roles."""
    roles = {pid: role_of(command).split()[0] for pid, command in session(job).items()}
    pids = [] if broker.pid is None else [broker.pid, *_children(broker.pid)]
    return roles | dict.fromkeys(pids, BROKER)


def _children(pid: int) -> list[int]:
    return [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text(encoding="ascii").split()
    ]


def measured(processes: Callable[[], dict[int, str]], work: Callable[[], None]) -> Spent:
    before, begun = spent_so_far(processes()), time.perf_counter()
    work()
    seconds = time.perf_counter() - begun
    cpu = spent_so_far(processes())
    cpu.subtract(before)
    return Spent(seconds=seconds, cpu=cpu)
