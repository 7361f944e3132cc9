"""`plan --desired` and `apply --desired`, with a job that answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from spu_assigner.core.base.events import TopicAdopted
from spu_assigner.stream.cli import cli
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.topic_admin import create_topics
from support.events.builders import Events
from support.job.small_job import SmallJob, small_job
from support.kafka.reading import committed
from support.kafka.shared_broker import SharedBroker

SPUS = (1, 2, 3)
UNEVEN = ((1, 2), (3,))
Call = Callable[..., Result]


@pytest.fixture
def settings(kafka: SharedBroker, topic_prefix: str) -> Settings:
    create_topics({"bootstrap.servers": kafka.bootstrap_servers}, prefix=topic_prefix)
    flags = {"bootstrap_servers": kafka.bootstrap_servers, "topic_prefix": topic_prefix}
    return Settings.load(flags=flags, environ={})


@pytest.fixture
def job(settings: Settings) -> Iterator[SmallJob]:
    with small_job(settings) as job:
        job.apply([Events().join(spu_id, event_id=f"join/{spu_id}") for spu_id in SPUS])
        yield job


@pytest.fixture
def desired(settings: Settings, tmp_path: Path) -> Call:
    """`plan` or `apply` of so many partitions and replicas of a topic."""

    def call(command: str, name: str, partitions: int, factor: int, *options: str) -> Result:
        file = tmp_path / "topics.yaml"
        file.write_text(
            f"topics: [{{name: {name}, partitions: {partitions}, replication_factor: {factor}}}]",
            "utf-8",
        )
        where = ("-b", settings.bootstrap_servers, "--topic-prefix", settings.topic_prefix)
        asked = [command, "--cluster", "c1", "--desired", str(file), *where, *options]
        return CliRunner().invoke(cli, asked)

    return call


def sent(settings: Settings) -> int:
    """The requests so far."""
    return len(committed(settings.bootstrap_servers, f"{settings.topic_prefix}topic-events"))


@pytest.mark.smoke
def test_lists_of_unequal_length_get_the_factor_of_the_file(
    settings: Settings, job: SmallJob, desired: Call
) -> None:
    """The longest list alone has what the file says of all."""
    adopted = TopicAdopted(event_id="adopt/1", cluster_id="c1", topic="t", replicas=UNEVEN)
    job.apply([adopted])
    planned = desired("plan", "t", 2, 2)
    assert (planned.exit_code, planned.stderr) == (2, "")
    assert planned.stdout.startswith("~ t  replication factor 1 to 2 → 2\n")
    with job.answering():
        applied = desired("apply", "t", 2, 2)
    assert (applied.exit_code, applied.stderr) == (0, "")
    lists = job.states()["c1"].topics["t"].replicas.lists().tolist()
    assert [len(row) for row in lists] == [2, 2]
    before = sent(settings)
    again = desired("apply", "t", 2, 2)
    assert (again.exit_code, again.stdout.splitlines()[0]) == (0, "= 1 topic mapped as desired")
    assert sent(settings) == before
