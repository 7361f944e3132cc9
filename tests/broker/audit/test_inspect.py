"""`spu-assigner inspect`: from what lies in Kafka, written by the parts of the job itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result
from spu_assigner.stream.cli import cli
from spu_assigner.stream.kafka.config.settings import Settings
from support.events.builders import Events
from support.job.small_job import small_job


@pytest.mark.smoke
def test_what_a_job_has_published_is_shown(settings: Settings) -> None:
    """All clusters in numbers, one in detail, a topic's map; what is not there is answered."""

    def asked(*arguments: str) -> Result:
        place = ["-b", settings.bootstrap_servers, "--topic-prefix", settings.topic_prefix]
        return CliRunner().invoke(cli, ["inspect", *arguments, *place], env={})

    def clusters(*arguments: str) -> list[dict[str, Any]]:
        done = asked(*arguments, "--output", "json")
        assert (done.exit_code, done.stderr) == (0, "")
        found: list[dict[str, Any]] = json.loads(done.stdout)["clusters"]
        return found

    assert "There is no cluster yet." in asked().stdout
    events, others = Events(), Events("c2")
    with small_job(settings) as job:
        joins = events.racks({"r": [0, 1], "s": [2]}, capacity=10)
        job.apply([*joins, *(events.create(name, 3, 2) for name in "abc"), events.delete("b")])
        job.apply(others.joins(0))
    counts = [(each["cluster_id"], each["topics"], each["replicas"]) for each in clusters()]
    assert counts == [("c1", 2, 12), ("c2", 0, 0)]
    [found] = clusters("--cluster", "c1", "--topic", "a")
    assert [each["spu_id"] for each in found["detail"]["spus"]] == [0, 1, 2]
    assert [len(each) for each in found["topic"]["lists"]] == [2, 2, 2]
    for arguments, words in (
        (["--cluster", "c9"], "no cluster 'c9' on "),
        (["--cluster", "c1", "--topic", "b"], "no topic 'b'; it has a, c"),
    ):
        done = asked(*arguments)
        assert (done.exit_code, words in done.stderr) == (1, True), done.stderr
