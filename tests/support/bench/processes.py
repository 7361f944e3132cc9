"""What the processes of a job take while it runs: memory and CPU time, by what each is.

PSS is counted: pages that forked workers share are divided among them, so a sum is what the machine
really gives.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from spu_assigner.stream.local.broker.embedded import EmbeddedBroker
from support.job.programs import session

BROKER: Final = "broker"
TREE: Final = "tree"  # all processes of the job together, without the broker
INTERVAL_SECONDS: Final = 0.5
MB: Final = 1_000_000
MIB: Final = 1 << 20
THREADS: Final = (  # how their names begin, and what they do
    ("stream executio", "planning"),
    ("Executor task", "tasks"),
    ("C1 Compiler", "compilers"),
    ("C2 Compiler", "compilers"),
    ("VM Thread", "collection"),
    ("dag-scheduler", "scheduling"),
    ("dispatcher", "scheduling"),
    ("kafka", "Kafka's clients"),
)
_TICK: Final = os.sysconf("SC_CLK_TCK")


def role_of(command: str) -> str:
    """What a process of the job is, by its command line."""
    if "spu_assigner.stream.job.shard.server" in command:
        return "servers"
    if "CoarseGrainedExecutorBackend" in command:
        return "executors"
    if "org.apache.spark.deploy.SparkSubmit" in command:
        return "jvm"
    if "pyspark.daemon" in command or "pyspark/daemon" in command:
        return "workers"
    if "spu_assigner.stream" in command or "spu-assigner" in command:
        return "driver"
    return "other"


def roles(job: subprocess.Popen[bytes], broker: EmbeddedBroker) -> dict[int, str]:
    """The job's processes and the broker's, with what each is."""
    found = {pid: role_of(command) for pid, command in session(job).items()}
    if broker.pid is not None:
        found[broker.pid] = BROKER
        for task in Path(f"/proc/{broker.pid}/task").iterdir():
            with suppress(OSError):  # A thread may end meanwhile.
                found |= dict.fromkeys(map(int, (task / "children").read_text().split()), BROKER)
    return found


def proportional_size(pid: int) -> int:
    """The bytes a process holds, of shared pages its part; 0 when it is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def sizes(job: subprocess.Popen[bytes], broker: EmbeddedBroker) -> Counter[str]:
    """Bytes by role, now."""
    found = Counter[str]()
    for pid, role in roles(job, broker).items():
        found[role] += proportional_size(pid)
    found[TREE] = found.total() - found[BROKER]
    return found


def cpu_seconds(job: subprocess.Popen[bytes], broker: EmbeddedBroker) -> Counter[str]:
    """CPU time by role, of the processes that live."""
    found = Counter[str]()
    for pid, role in roles(job, broker).items():
        with suppress(OSError):
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
            found[role] += sum(map(int, stat.rpartition(") ")[2].split()[11:13])) / _TICK
    return found


def thread_seconds(pid: int) -> Counter[str]:
    """CPU time of a JVM's threads, by what they do."""
    found = Counter[str]()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            name, _, rest = (task / "stat").read_text(encoding="utf-8").rpartition(") ")
            used = sum(map(int, rest.split()[11:13])) / _TICK
            role = next((what for start, what in THREADS if f"({start}" in name), "the rest")
            found[role] += used
    return found


@contextmanager
def sampled(job: subprocess.Popen[bytes], broker: EmbeddedBroker) -> Iterator[dict[str, int]]:
    """The most MB that each role holds while the block runs; filled when it ends."""
    peaks, most = dict[str, int](), Counter[str]()
    ends = threading.Event()

    def look() -> None:
        nonlocal most
        while not ends.wait(INTERVAL_SECONDS):
            most |= sizes(job, broker)  # the larger of each

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        ends.set()
        thread.join()
        peaks.update({role: round(size / MB) for role, size in sorted(most.items())})
