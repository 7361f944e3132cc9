"""What a real job shows of itself, held against what Kafka holds."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from spu_assigner.core.base.events import LeaveMode, OnShortage
from spu_assigner.core.base.records import TopicStatus
from spu_assigner.schemas.messages.codec import decode_record
from spu_assigner.stream.clusters.moves.run_record import Seat, begun_run
from spu_assigner.stream.job.lifecycle import start
from spu_assigner.stream.kafka.acls import Role, follower_name
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.election import LeaderElection
from spu_assigner.stream.kafka.topic_admin import create_topics
from spu_assigner.stream.kafka.topics import ASSIGNER_COMMITS
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker
from spu_assigner.stream.local.jvm.java import Java
from support.events.builders import Events
from support.job.streams import SHARDS
from support.kafka.traffic import PATIENCE_SECONDS, Kafka
from support.project.promql import (
    alert_faults,
    alert_rules,
    dashboard_faults,
    expressions,
    samples_of,
)

DASHBOARD: dict[str, Any] = json.loads(
    (Path(__file__).parents[4] / "docker/grafana/spu-assigner.json").read_text(encoding="utf-8")
)
ALERTS = Path(__file__).parents[4] / "docker/prometheus/alerts.yml"
PREFIX = "test-metrics."

Values = dict[tuple[str, ...], float]
Answer = tuple[int, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What a job showed in its life."""

    kafka: Kafka
    sent: int  # messages of topic-events
    pages: tuple[str, str, str]  # our metrics, those of Spark's driver, of its executors
    live: Answer
    ready: Answer
    live_when_stopped: Answer
    settings: Settings


def asked(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def as_json(url: str) -> Answer:
    status, body = asked(url)
    return status, json.loads(body)


def values(page: str) -> Values:
    """Each sample by its name and its labels' values, in the order of their names."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def until(look: Callable[[], Any], is_so: Callable[[Any], bool]) -> Any:
    """What it gives, once it is so: what is looked at changes by itself."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so(found := look()):
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
    return found


def send_all_kinds(kafka: Kafka) -> int:
    """Each status, many codes, a repeated event, dead letters, saturation: so many requests."""
    one, two = Events("one"), Events("two", first=1_000)
    repeated = one.create("again", 1, 1)
    requests = [
        one.manual("pinned", [0]),  # fills it
        *(one.create(f"t{number}", 2, 2) for number in range(5)),
        repeated,
        repeated,
        one.create("t0", 1, 1),
        one.create("wide", 1, 9),
        one.create("none", 0, 1),
        one.create("later", 1, 5, on_shortage=OnShortage.WAIT),
        one.create("checked", 1, 1, validate_only=True),
        one.delete("t1"),
        one.delete("unknown"),
        one.grow("t2", 4),
        two.create("t", 3, 2, demand={"disk_bytes": 10}),
    ]
    disks = two.joins(0, 1, 2, resources={"disk_bytes": 100})
    kafka.send([one.join(0, capacity=1), *one.joins(1, 2), *disks])
    kafka.send([two.leave(2, mode=LeaveMode.OFFLINE), *requests])
    kafka.send_raw("topic-events", b"one", b"no event")
    kafka.send_raw("topic-events", None, b"no key")
    return len(requests) + 2


@pytest.fixture(scope="module")
def watched(kafka: EmbeddedBroker, java: Java, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    folder = tmp_path_factory.mktemp("metrics")
    create_topics({"bootstrap.servers": kafka.bootstrap_servers}, prefix=PREFIX)
    settings = Settings.load(
        flags={
            "bootstrap_servers": kafka.bootstrap_servers,
            "topic_prefix": PREFIX,
            "checkpoint": str(folder / "checkpoint"),
            "shards": SHARDS,
            "master": "local[2]",
            "metrics_port": "0",
        },
        environ={},
    )
    broker = Kafka(settings)
    sent = send_all_kinds(broker)
    with Seat(settings.connection()) as seat:
        seat.take_over()
        seat.write(replace(begun_run("one"), moves_total=3, moves_done=1))
    name = follower_name("one", prefix=PREFIX)
    follow = LeaderElection(
        settings.connection(), group=name, topic=ASSIGNER_COMMITS, role=Role.FOLLOWER
    )
    until(lambda: (follow.poll(0.2), follow.is_mine)[1], bool)
    follow.commit_look(7)
    follow.close()

    def is_shown(page: str) -> bool:
        found = values(page)
        return (
            found.get(("spu_assigner_events_total", f"{PREFIX}topic-events")) == sent
            and found["spu_assigner_batch_seconds_count",] > 0
            and ("spu_assigner_lag_messages", "0", f"{PREFIX}topic-events") in found
            and ("spu_assigner_moves_running",) in found
            and ("spu_assigner_follow_age_seconds", "one") in found
        )

    with start(settings) as job:
        url = job.watch.url or ""
        base = url.removesuffix("/metrics")
        page = until(lambda: asked(url)[1], is_shown)
        places = [
            f"{job.spark.sparkContext.uiWebUrl}/metrics/prometheus",
            f"{job.spark.sparkContext.uiWebUrl}/metrics/executors/prometheus",
        ]
        pages = (page, *(asked(place)[1] for place in places))
        live, ready = as_json(f"{base}/live"), as_json(f"{base}/ready")
        job.query.stop()
        stopped = until(lambda: as_json(f"{base}/live"), lambda answer: answer[0] != 200)
        broker.send([Events("one", first=500).join(2)])
    return Watched(
        kafka=broker,
        sent=sent,
        pages=pages,
        live=live,
        ready=ready,
        live_when_stopped=stopped,
        settings=settings,
    )


def lags(found: Values) -> Values:
    return {name: value for name, value in found.items() if name[0] == "spu_assigner_lag_messages"}


@pytest.mark.smoke
def test_counts_are_those_of_the_answers_in_kafka(watched: Watched) -> None:
    """By status and code, nothing more and nothing less."""
    counted = Counter[tuple[str, str]]()
    for (name, *labels), number in values(watched.pages[0]).items():
        if name == "spu_assigner_answers_total":
            code, _, status = labels
            counted[status, code] += int(number)
    records = [
        decode_record(message.value() or b"") for message in watched.kafka.read("topic-status")
    ]
    assert counted == Counter(
        (record.status.value, "" if record.code is None else record.code.value)
        for record in records
        if isinstance(record, TopicStatus)
    )
    statuses = {status for status, _ in counted}
    assert statuses == {"assigned", "rejected", "validated", "deleted", "waiting"}
    assert len(counted) >= 8


def test_clusters_and_moves_are_reported_as_they_are(watched: Watched) -> None:
    """Another process moves partitions; the job reads how far it is."""
    found = {
        (name.removeprefix("spu_assigner_"), *labels): value
        for (name, *labels), value in values(watched.pages[0]).items()
    }
    expected = {
        ("cluster_ring_size", "two"): 2,
        ("cluster_offline_spus", "two"): 1,
        ("cluster_capacity_share", "two"): 6 / (2 * 6_998),
        ("cluster_resource_share", "two", "disk_bytes"): 0.3,
        ("cluster_saturated_spus", "one"): 1,
        ("cluster_waiting", "one"): 1,
        ("clusters", "measured"): 2,
        ("moves", "pending"): 2,
        ("moves", "done"): 1,
        ("moves_running",): 1,
        ("cluster_topics_of_one_leader", "one"): 0,
        ("follow_partitions_ahead", "one"): 7,
    }
    assert {name: found[name] for name in expected} == expected
    assert 0 <= found["follow_age_seconds", "one"] < PATIENCE_SECONDS


@pytest.mark.smoke
def test_health_is_reported_with_a_status_and_a_reason(watched: Watched) -> None:
    """While the query runs, and when it has ended with the process still there."""
    assert watched.live[0] == watched.ready[0] == 200
    status, body = watched.live_when_stopped
    assert (status, body["live"]) == (503, False)
    assert "the query has ended" in body["reason"]


def test_after_a_restart_nothing_is_counted_of_a_batch_that_was_sent(watched: Watched) -> None:
    """It is skipped, and said so; the figures of its clusters are there again."""
    commits = Path(watched.settings.checkpoint, "commits")
    newest = max(int(path.name) for path in commits.glob("[0-9]*"))
    (commits / str(newest)).unlink()  # as if it had died before noting it
    with start(watched.settings) as job:
        url = job.watch.url or ""
        found = until(
            lambda: values(asked(url)[1]),
            lambda found: (
                found["spu_assigner_batches_total",] == 1 and not any(lags(found).values())
            ),
        )
    assert found["spu_assigner_replays_skipped_total",] == 1
    assert found["spu_assigner_batches_total",] == 1  # the join that came in between
    assert not [name for name in found if name[0] == "spu_assigner_answers_total"]
    assert not [name for name in found if name[0] == "spu_assigner_dead_letters_total"]
    assert found["spu_assigner_events_total", f"{PREFIX}spu-events"] == 1
    assert (
        found["spu_assigner_cluster_assigned_partitions", "one"]
        == (values(watched.pages[0])["spu_assigner_cluster_assigned_partitions", "one"])
    )


def test_each_query_of_the_dashboard_is_of_what_is_there(watched: Watched) -> None:
    """Names, labels and values of all panels, ours and Spark's."""
    samples = [sample for page in watched.pages for sample in samples_of(page)]
    assert len(expressions(DASHBOARD)) > 30
    assert dashboard_faults(DASHBOARD, samples) == []
    wrong = json.dumps(DASHBOARD).replace("sum by (status, code)", "sum by (status, kode)")
    assert dashboard_faults(json.loads(wrong), samples) != []


def test_each_alert_is_of_what_is_there(watched: Watched) -> None:
    """A rule that names what no job shows never fires."""
    file = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))
    assert len(alert_rules(file)) == 10
    samples = samples_of(watched.pages[0])
    assert alert_faults(file, samples, job="spu-assigner") == []
