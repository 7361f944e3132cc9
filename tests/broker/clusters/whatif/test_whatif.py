"""`spu-assigner whatif` on what a job leaves in Kafka."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result
from spu_assigner.core.base.events import Event, LeaveMode, Policy
from spu_assigner.stream.cli import cli
from spu_assigner.stream.kafka.config.settings import Settings
from support.events.builders import Events
from support.job.small_job import small_job


def from_kafka(settings: Settings, *arguments: str) -> Result:
    place = ["-b", settings.bootstrap_servers, "--topic-prefix", settings.topic_prefix]
    return CliRunner().invoke(cli, ["whatif", *place, *arguments, "-o", "json"])


def failure(done: Result) -> dict[str, Any]:
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)["failure"]
    return found


def documents(events: Events) -> list[Event]:
    """Fluvio's uneven racks, and a topic that is lost with SPU 0."""
    return [
        *events.racks({"a": [0], "b": [1, 2], "c": [3, 4, 5]}, capacity=6),
        events.create("t", 6, 3, policy=Policy.FLUVIO),
        events.manual("single", [0], policy=Policy.MANUAL),
    ]


@pytest.mark.smoke
def test_what_a_job_has_published_is_enough(settings: Settings) -> None:
    """Racks, capacities, who is offline, lists: all of it is in the topics."""
    events = Events()
    with small_job(settings) as job:
        job.apply(documents(events))
        job.apply([events.create("gone", 2, 1), events.delete("gone")])
        whole = failure(from_kafka(settings, "--fail", "rack=c", "--cluster", "c1"))
        job.apply([events.leave(5, mode=LeaveMode.OFFLINE), *Events("c2").joins(0)])
    assert (whole["leaders_lost"], whole["under_replicated"], whole["lost"]) == (3, 6, 0)
    assert whole["leaders"] == {"partitions": 7, "most": 3, "mean": 2.33}
    recreate = whole["recreate"]
    assert (recreate["replicas"], recreate["free_slots"], recreate["spus_to_add"]) == (9, 8, 1)
    without = failure(from_kafka(settings, "--fail", "rack=c", "--cluster", "c1"))
    assert (without["failed"], without["recreate"]["replicas"]) == ([3, 4], 6)
    lost = from_kafka(settings, "--fail", "any-1-spu", "--cluster", "c1")
    assert lost.exit_code == 1
    assert failure(lost)["lost_partitions"] == [{"topic": "single", "partition": 0}]
    unknown = from_kafka(settings, "--fail", "spu=0", "--cluster", "c3")
    assert (unknown.exit_code, "no cluster 'c3'" in unknown.stderr) == (2, True)
