"""Judges what a job has written, as a reader of its topics sees it.

`look` follows the markers while the job is killed and started; `settle` then has `spu-assigner
verify --strict` apply all events again. What does not fit is counted by kind; nothing is raised.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter, defaultdict
from typing import Any

from click.testing import CliRunner
from spu_assigner.schemas.messages.wire import CommitMarker
from spu_assigner.stream.cli import cli
from support.job.streams import AUDIT, OUTPUTS, Read, Streams, marker_of

SHOWN_SECONDS = 60.0  # until a committed transaction is seen whole; it takes milliseconds
FAULTS_REPORTED_MAX = 20  # one fault may bring thousands


class Judge:
    """Reads along with a job; `look` any time, `settle` when everything sent has been applied."""

    def __init__(self, streams: Streams, bootstrap_servers: str, prefix: str) -> None:
        self.faults: list[str] = []
        self.counts: Counter[str] = Counter()
        self.applied = 0  # input messages
        self.batch = -1  # of the last marker
        self.report: dict[str, Any] = {}  # of `verify`, at the last settling
        self._place = bootstrap_servers, prefix
        self._audit = streams.tail(AUDIT)
        self._output = streams.tail(*OUTPUTS)
        self._following: dict[tuple[str, int], int] = defaultdict(int)  # the next offset to apply
        self._ids: set[bytes] = set()

    def look(self, *, at_all: bool = False) -> None:
        """Read and judge what has come: if markers have come, unless all is to be looked at."""
        markers = [marker_of(read.value) for read in self._audit.more()]
        is_due = self.counts["messages"] < self.counts["messages due"]
        if not (markers or is_due or at_all):
            return
        for marker in markers:
            self._follow(marker)
        for read in self._output.more():
            self._take(read)

    def settle(self) -> None:
        """All that was sent is applied: nothing may be left over, and all is as the core says.

        Kafka shows a transaction's messages partition by partition, so its marker may be there a
        moment before them.
        """
        self.look(at_all=True)
        deadline = time.monotonic() + SHOWN_SECONDS
        while self.counts["messages"] < self.counts["messages due"]:
            if time.monotonic() > deadline:
                break
            self.look()
        if self.counts["messages"] != self.counts["messages due"]:
            due, found = self.counts["messages due"], self.counts["messages"]
            self._fault("count", f"the markers have {due} messages, there are {found}")
        status, self.report = audit(*self._place, "--strict")
        if status:
            self._fault("verify", f"status {status}: {self.report['findings'] or self.report}")

    def close(self) -> None:
        for tail in (self._audit, self._output):
            tail.close()

    def _follow(self, marker: CommitMarker) -> None:
        self.counts["markers"] += 1
        if marker.batch <= self.batch:
            self._fault("second markers", f"batch {marker.batch} has been committed already")
            return
        if marker.batch != self.batch + 1:
            self._fault("gaps", f"the marker of batch {marker.batch} follows on {self.batch}")
        self.batch = marker.batch
        self.counts["messages due"] += marker.count
        for topic, parts in marker.offsets.items():
            for part in parts:
                following = self._following[topic, part.partition]
                if part.first != following:
                    kind = "gaps" if part.first > following else "duplicates"
                    place = f"{topic}/{part.partition}"
                    self._fault(kind, f"{place}: {part.first} follows on {following - 1}")
                self._following[topic, part.partition] = part.last + 1
                self.applied += part.count

    def _take(self, read: Read) -> None:
        identity = hashlib.blake2b(read.ce_id or b"", digest_size=8).digest()
        if read.ce_id is None or identity in self._ids:
            self._fault("duplicates", f"{read.place} {read.key!r}: ce_id {read.ce_id!r} again")
            return
        self._ids.add(identity)
        self.counts["messages"] += 1

    def _fault(self, kind: str, message: str) -> None:
        self.counts["faults"] += 1
        self.counts[kind] += 1
        if len(self.faults) < FAULTS_REPORTED_MAX:
            self.faults.append(f"{kind}: {message}")


def audit(bootstrap_servers: str, prefix: str, *options: str) -> tuple[int, dict[str, Any]]:
    """Its exit status and report."""
    place = ["-b", bootstrap_servers, "--topic-prefix", prefix, "--output", "json"]
    result = CliRunner().invoke(cli, ["verify", *place, *options], env={})
    assert result.stdout, result.stderr or result.exception
    return result.exit_code, json.loads(result.stdout)
