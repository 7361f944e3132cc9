"""What `adopt` takes, refuses and prints, without a broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner
from spu_assigner.core.base.events import SpuJoined, TopicAdopted, TopicRelease
from spu_assigner.stream.cli import cli
from spu_assigner.stream.clusters.follow.adopt import AdoptReport
from spu_assigner.stream.clusters.follow.adopt_rendering import (
    dry_run_lines,
    report_json,
    report_lines,
)
from spu_assigner.stream.clusters.follow.adoption import AdoptionDecision
from spu_assigner.stream.clusters.follow.rendering import Progress, size_text
from spu_assigner.stream.clusters.plan.model import Rows, TopicReason
from spu_assigner.stream.kafka import connection_diagnosis

COMMAND = ["adopt", "--cluster", "c1"]


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (["--cluster", "a/b"], "'a/b' is not 1 to 249"),
        (["--policy", "mine"], "'mine' is not one of"),
        (["--capacity", "-1"], "-1 is not in the range"),
        (["--resources", "a b=1"], "resources names 'a b'; expected 1 to 64 of"),
        (["--wait", "0"], "0.0 is not in the range"),
    ],
)
def test_wrong_usage_is_one_line_and_no_answer_of_a_dry_run(given: list[str], fault: str) -> None:
    """Status 2 says that there is something to do: a typing error must not."""
    done = CliRunner().invoke(cli, [*COMMAND, *given])
    assert done.exit_code == 1
    assert fault in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_cluster_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is sent anywhere."""
    monkeypatch.setattr(
        connection_diagnosis,
        "WAIT_LIMITS",
        connection_diagnosis.WaitLimits(request=0.2, refused=0.1),
    )
    done = CliRunner().invoke(cli, [*COMMAND, "-b", "127.0.0.1:9"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("spu-assigner: no Kafka broker answers at 127.0.0.1:9 (")
    assert done.stderr.count("\n") == 1


def adopted(topic: str, rows: Rows) -> TopicAdopted:
    return TopicAdopted(event_id=topic, cluster_id="c1", topic=topic, replicas=rows)


JOIN = SpuJoined(event_id="j", cluster_id="c1", spu_id=1, rack="a", capacity=5)
DECISION = AdoptionDecision(
    events=(
        adopted("new", ((1, 2), (2,))),
        adopted("old", ((1,),)),
        TopicRelease(event_id="r", cluster_id="c1", topic="away"),
    ),
    equal=("same",),
    pending=(TopicReason(topic="moved", reason="its map was changed"),),
    left=(TopicReason(topic="busy", reason="Kafka is reassigning"),),
    gone=("away",),
    revisions={"old": 3, "away": 1},
)


def report(**given: Any) -> AdoptReport:
    return AdoptReport(
        **{
            "kafka_cluster": "k",
            "joins": (JOIN,),
            "crowded": {},
            "decision": DECISION,
            **given,
        }
    )


def test_a_dry_run_shows_each_event_and_what_is_left_out() -> None:
    """A sign for each kind, and the sum."""
    assert list(dry_run_lines(report())) == [
        "+ SPU 1  rack a, 1 core, 5 slots",
        "+ new  2 partitions of 1 or 2 replicas: has no map",
        "~ old  1 partition of 1 replica: differs from revision 3 of its map",
        "- away  gone from Kafka: is released",
        "! busy  Kafka is reassigning",
        "? moved  its map was changed",
        "1 broker to join, 2 topics to adopt, 1 to release, 1 as mapped before, 1 changed here, "
        "for `apply` to carry out, 1 left alone",
    ]


def test_a_run_shows_what_became_of_it() -> None:
    """What was not done has a line each."""
    done = report(
        adopted=("new",),
        released=("away",),
        rejected=(TopicReason(topic="old", reason="no"), TopicReason(topic="SPU 1", reason="no")),
        changed=(TopicReason(topic="new", reason="was changed by others"),),
        unanswered=2,
    )
    assert list(report_lines(done)) == [
        "! busy  Kafka is reassigning",
        "! old  no",
        "! SPU 1  no",
        "! new  was changed by others",
        "1 topic adopted, 1 released, 2 not answered, 2 rejected, 1 as mapped before, 1 changed "
        "here, for `apply` to carry out, 1 left alone",
    ]
    assert not done.is_whole
    found = report_json(done, dry_run=False)
    assert (found["adopted"], found["gone"], found["unanswered"]) == (("new",), ("away",), 2)
    assert [each["type"] for each in found["events"]] == [  # type: ignore[attr-defined]  # a list
        "spu_joined",
        "topic_adopted",
        "topic_adopted",
        "topic_release",
    ]


def test_bytes_are_shown_of_each_topic_and_of_all() -> None:
    """In all replicas: what the brokers hold."""
    sized = AdoptionDecision(
        events=(
            replace(adopted("new", ((1, 2), (2,))), demand={"disk_bytes": 2048}),
            replace(adopted("old", ((1,),)), demand={"disk_bytes": 1024, "net": 1}),
            adopted("empty", ((1,),)),
        ),
        revisions={"old": 3},
        resized=frozenset({"old"}),
    )
    assert list(dry_run_lines(report(joins=(), decision=sized))) == [
        "+ new  2 partitions of 1 or 2 replicas of 2.0 KiB: has no map",
        "~ old  1 partition of 1 replica of 1.0 KiB: holds other bytes than revision 3 of its map "
        "says",
        "+ empty  1 partition of 1 replica: has no map",
        "0 brokers to join, 3 topics to adopt (2 with their bytes: 7.0 KiB in all replicas)",
    ]
    done = report(joins=(), decision=sized, adopted=("new", "empty"))
    assert list(report_lines(done)) == [
        "2 topics adopted (1 with their bytes: 6.0 KiB in all replicas)"
    ]
    assert report_json(done, dry_run=True)["sized"] == {"topics": 2, "disk_bytes": 7168}
    assert report_json(done, dry_run=False)["sized"] == {"topics": 1, "disk_bytes": 6144}


def test_nothing_to_do_is_said_in_so_many_words() -> None:
    """The line that a second run ends with."""
    done = report(joins=(), decision=AdoptionDecision(equal=("a", "b"), gone=("c",)))
    assert list(dry_run_lines(done)) == [
        ". c  is gone from Kafka; --forget-gone releases it",
        "nothing to do: 0 brokers to join, 0 topics to adopt, 2 as mapped before, 1 gone",
    ]
    assert done.is_whole


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (((1,),), "1 partition of 1 replica"),
        (((1, 2), (2, 3)), "2 partitions of 2 replicas"),
        (((1,), (1, 2), (1, 2, 3)), "3 partitions of 1, 2 or 3 replicas"),
    ],
)
def test_lists_of_several_lengths_are_all_named(rows: Rows, text: str) -> None:
    assert size_text(adopted("t", rows)) == text


def test_without_a_terminal_progress_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A log is not filled with bars; a program that reads JSON sees nothing."""
    for is_quiet in (False, True):
        progress = Progress("adopt", is_quiet=is_quiet)
        with progress.shown(1_234):
            progress.add(1_000)
    assert capsys.readouterr().err == "adopt: sends 1,234 events and waits for answers\n"
