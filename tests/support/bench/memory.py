"""How much memory a job's processes hold, sampled while it runs.

PSS is counted: pages that forked workers share are divided among them, so a sum is what the machine
really gives.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from support.job.programs import session

BROKER: Final = "broker"
TREE: Final = "tree"  # all processes of the job together, without the broker
INTERVAL_SECONDS: Final = 0.5
MB: Final = 1_000_000
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What each kind of process held at one moment, in bytes."""

    seconds: float  # since the first sample
    sizes: Mapping[str, int]


def role_of(command: str) -> str:
    """What a process of the job is, by its command line."""
    words = command.split()
    if "spu_assigner.stream.job.shard.server" in words:
        return f"keeper {words[words.index('spu_assigner.stream.job.shard.server') + 1]}"
    if "org.apache.spark.deploy.SparkSubmit" in command:
        return "jvm"
    if "pyspark.daemon" in command or "pyspark/daemon" in command:
        return "workers"
    if "spu_assigner.stream" in command or "spu-assigner" in command:
        return "driver"
    return "other"


def proportional_size(pid: int) -> int:
    """The bytes a process holds, of shared pages its part; 0 when it is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


class Sampler:
    """Looks at a job's processes, and at the broker's, until the block ends."""

    def __init__(self, process: subprocess.Popen[bytes], broker_pid: int | None) -> None:
        self.samples: list[Sample] = []
        self._process = process
        self._broker_pid = broker_pid
        self._done = threading.Event()
        self._begun = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()

    def peaks_mb(self, *, since: float = 0.0) -> dict[str, int]:
        """The most that each kind of process held at one moment, from a moment on."""
        samples = [sample for sample in self.samples if sample.seconds >= since]
        roles = sorted({role for sample in samples for role in sample.sizes})
        return {
            role: round(max(each.sizes.get(role, 0) for each in samples) / MB) for role in roles
        }

    def series(self, role: str, *, since: float = 0.0) -> list[tuple[float, float]]:
        """(seconds, bytes) of one kind of process, from a moment on."""
        return [
            (each.seconds, each.sizes.get(role, 0))
            for each in self.samples
            if each.seconds >= since
        ]

    def seconds(self) -> float:
        """Now, on the clock of the samples."""
        return time.monotonic() - self._begun

    def _run(self) -> None:
        while not self._done.wait(INTERVAL_SECONDS):
            sizes: dict[str, int] = {}
            for pid, command in session(self._process).items():
                role = role_of(command)
                sizes[role] = sizes.get(role, 0) + proportional_size(pid)
            sizes[TREE] = sum(sizes.values())
            if self._broker_pid is not None:
                sizes[BROKER] = proportional_size(self._broker_pid)
            self.samples.append(Sample(seconds=self.seconds(), sizes=sizes))
