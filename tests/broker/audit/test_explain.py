"""`spu-assigner explain`: from what lies in Kafka, and nothing else.

The outputs are written by the parts of the job themselves, without Spark.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result
from spu_assigner.core.base.events import Event, LeaveMode, OnShortage, Policy
from spu_assigner.stream.audit.cluster_report import read_topic
from spu_assigner.stream.cli import cli
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.config.settings import Settings
from support.events.builders import Events
from support.job.small_job import small_job


def asked(settings: Settings, *arguments: str) -> Result:
    options = ["-b", settings.bootstrap_servers, "--topic-prefix", settings.topic_prefix]
    return CliRunner().invoke(cli, ["explain", *arguments, *options], env={})


def explained(settings: Settings, *arguments: str) -> list[dict[str, Any]]:
    done = asked(settings, *arguments, "--output", "json")
    assert (done.exit_code, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.smoke
def test_a_life_is_explained_from_the_topics(settings: Settings) -> None:
    """Placed over racks, saturated on the way, repaired, grown: each with names; what waits,
    is gone or was never there is answered by name as well."""
    events = Events()
    batches: list[list[Event]] = [
        [
            *events.racks({"a": [0, 1], "b": [2, 3], "c": [4, 5]}, capacity=40),
            events.leave(5),
            events.join(6, rack="b", capacity=1),
        ],
        [
            events.create("walk", 6, 3, policy=Policy.FLUVIO),
            events.create("table", 7, 2, policy=Policy.FLUVIO, ignore_rack=True),
            events.create("kafka", 5, 3, policy=Policy.KAFKA),
            events.create("pointer", 4, 2, policy=Policy.REDPANDA),
            events.create("even", 4, 3, policy=Policy.BALANCED),
            events.create("large", 1, 20, on_shortage=OnShortage.WAIT),
            events.create("gone", 1, 1),
            events.delete("gone"),
            events.create("freed", 1, 1),
            events.release("freed"),
        ],
        [events.leave(4, mode=LeaveMode.DECOMMISSION)],
        [events.grow("table", 9)],
    ]
    with small_job(settings) as job:
        for batch in batches:
            job.apply(batch)

    modes = {
        "walk": "rack_walk",
        "table": "round_robin",
        "kafka": "rack_shifted",
        "pointer": "pointer",
        "even": "balanced",
    }
    connection = Connection(
        bootstrap_servers=settings.bootstrap_servers, prefix=settings.topic_prefix
    )
    for topic, mode in modes.items():
        lines = explained(settings, "c1", topic)
        maps = {each.revision: each for each in read_topic(connection, "c1", topic)[1]}
        for line in lines:
            given = maps[line["revision"]].replicas
            assert given is not None
            assert line["replicas"] == given.tolist()[line["partition"]]
        first = [line for line in lines if line["revision"] == 1]
        assert {line["mode"] for line in first} == {mode}
        assert [line["unknown"] for line in first] == [[]] * len(first), first
        assert {line["recomputed"] for line in first} == {mode != "balanced"}
        assert {each["spu_id"] for line in first for each in line["not_in_ring"]} <= {5, 6}
        repairs = [line for line in lines if line["mode"] == "repair"]
        assert all(4 in line["replicas_before"] for line in repairs)
        assert {move["gone"] for line in repairs for move in line["moves"]} <= {4}

    grown = [line for line in explained(settings, "c1", "table") if line["partition"] >= 7]
    assert [line["mode"] for line in grown] == ["round_robin"] * 2
    assert all(line["recomputed"] for line in grown)
    assert {each["why"] for line in grown for each in line["not_in_ring"]} >= {"offline"}

    [one] = explained(settings, "c1", "walk", "0")[:1]
    assert (one["partition"], one["order"], one["chain_index"]) == (0, "diagonal", 0)
    text = asked(settings, "c1", "table", "6").stdout
    assert text.startswith("c1/table partition 6: ")
    assert "gap" in text
    assert "not in the ring: SPU 5, offline" in text

    [waiting] = explained(settings, "c1", "large")
    assert (waiting["type"], waiting["code"]) == ("waiting", "INSUFFICIENT_SPUS")
    for arguments, words in (
        (["c1", "gone"], "topic 'gone' of cluster 'c1' is deleted"),
        (["c1", "freed"], "topic 'freed' of cluster 'c1' is released"),
        (["c1", "never"], "no topic 'never' in cluster 'c1'; it has even, kafka"),
        (["c1", "walk", "6"], "no partition 6 in topic 'walk'; expected 0 to 5"),
        (["c9", "walk"], "no cluster 'c9' on "),
    ):
        done = asked(settings, *arguments)
        assert done.exit_code == 1
        assert words in done.stderr
