"""`follow --topics` beside three real brokers: what others do to topics enters the state."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from spu_assigner.stream.kafka.topic_admin import create_topics
from support.job.operator import SEEN_SECONDS_MAX, Lists, Operator
from support.job.small_job import SmallJob, small_job


class TopicFollower:
    """The command as a process, and the job that answers it."""

    def __init__(self, operator: Operator, job: SmallJob) -> None:
        self.job = job
        self.lines: list[str] = []
        self._operator = operator
        command = [sys.executable, "-m", "spu_assigner.stream.cli", "follow", "--cluster", "c1"]
        self._process = subprocess.Popen(
            [*command, "--interval", "0.2s", "--topics", f"{operator.prefix}*"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **operator.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self.lines.append(line.rstrip())

    def maps(self) -> dict[str, Lists]:
        """As the job knows them."""
        state = self.job.states().get("c1")
        return {
            name.removeprefix(self._operator.prefix): topic.replicas.lists().tolist()
            for name, topic in ({} if state is None else dict(state.topics)).items()
        }

    def waits(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SEEN_SECONDS_MAX
        while not is_so():
            assert time.monotonic() < deadline, [self.maps(), *self.lines]
            time.sleep(0.05)

    def end(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._reader.join()


@pytest.fixture
def follower(operator: Operator) -> Iterator[TopicFollower]:
    create_topics(operator.cluster.client, prefix=operator.prefix, partitions=2)
    with small_job(operator.settings()) as job, job.answering():
        found = TopicFollower(operator, job)
        yield found
        found.end()


def test_topics_that_all_vanish_at_once_are_kept(
    operator: Operator, follower: TopicFollower
) -> None:
    """That is rather a fault of the view; a person may say otherwise."""
    for topic in ("a", "b"):
        operator.make(topic, [[1]])
    follower.waits(lambda: set(follower.maps()) == {"a", "b"})
    operator.remove("a", "b")
    follower.waits(lambda: any("holds back the release of" in line for line in follower.lines))
    assert set(follower.maps()) == {"a", "b"}
    options = ("--cluster", "c1", "--topics", f"{operator.prefix}*", "--forget-gone")
    assert operator("adopt", *options).exit_code == 0
    assert follower.maps() == {}
