"""What the job counts: by shard, by batch, and as Prometheus reads it."""

from __future__ import annotations

import json
import socket
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from http.client import HTTPConnection

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from spu_assigner.core.base.events import Event, LeaveMode, OnShortage
from spu_assigner.core.base.records import TopicStatus
from spu_assigner.schemas.messages.codec import decode_record
from spu_assigner.schemas.messages.wire import CommitMarker, PartitionOffsets, PartitionPosition
from spu_assigner.stream.job.metrics.counters import (
    CLUSTERS_SHOWN,
    OTHERS,
    PREFIX,
    Metrics,
    add_job,
)
from spu_assigner.stream.job.metrics.health import SILENCE_SECONDS_MAX, JobHealth
from spu_assigner.stream.job.metrics.server import MetricsServer, application, listen
from spu_assigner.stream.job.metrics.watcher import Watch
from spu_assigner.stream.job.shard import batch as shard_batch_module
from spu_assigner.stream.job.shard import tally as tally_module
from spu_assigner.stream.job.shard.bundle import Bundle, MessageKind
from spu_assigner.stream.job.shard.tally import Answered, Figures, Tally
from spu_assigner.stream.kafka.config.settings import Settings, SettingsError
from support.events.builders import Events
from support.shard.stores import OneShard


class CountedShard(OneShard):
    """A shard of which each batch gives its tally, and the messages."""

    def send(self, *sent: Event | bytes) -> tuple[Tally, list[Bundle]]:
        bundles = self.bundles((b"x", each) if isinstance(each, bytes) else each for each in sent)
        assert [bundle.tally for bundle in bundles[:-1]] == [None] * (len(bundles) - 1)
        tally = bundles[-1].tally
        assert tally is not None
        return tally, bundles


def statuses(bundles: list[Bundle]) -> Counter[tuple[str, str]]:
    """Status and code of each message of `topic-status`."""
    records = [
        decode_record(message.value or b"")
        for bundle in bundles
        for message in bundle.messages()
        if message.kind == MessageKind.TOPIC_STATUS
    ]
    return Counter(
        (record.status.value, "" if record.code is None else record.code.value)
        for record in records
        if isinstance(record, TopicStatus)
    )


MARKER = CommitMarker(
    query="q",
    checkpoint_id="one",
    batch=3,
    count=5,
    digest="",
    offsets={"topic-events": (PartitionOffsets(partition=0, first=0, last=1, count=2),)},
    release="r",
    shards=2,
    default_policy="balanced",
    positions={"e": tuple(PartitionPosition(partition=number, next=10) for number in range(2))},
    topic_ids={},
)


def report(metrics: Metrics, *tallies: Tally, is_replay: bool = False) -> None:
    by_shard = dict(enumerate(tallies))
    metrics.report(MARKER, by_shard, is_replay=is_replay, at=1_000.0, parts={"send": 0.25})


def scraped(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """What a scrape shows: name and label values to value."""
    text = generate_latest(metrics.registry).decode()
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_each_answer_is_counted_by_request_status_and_code() -> None:
    """What is counted without a look at it, the usual creates, and what with one, are together."""
    shard, events = CountedShard(), Events()
    repeated = events.create("b", 3, 2)
    tally, bundles = shard.send(
        *events.joins(0, 1),
        events.create("a", 3, 2),
        repeated,
        repeated,
        events.create("big", 1, 5),
        events.create("later", 1, 3, on_shortage=OnShortage.WAIT),
        events.delete("a"),
        events.release("b"),
        b"no event",
    )
    assert tally.answers == {
        ("create", "assigned", ""): 2,
        ("create", "rejected", "INSUFFICIENT_SPUS"): 1,
        ("create", "waiting", "INSUFFICIENT_SPUS"): 1,
        ("delete", "deleted", ""): 1,
        ("release", "released", ""): 1,
    }
    assert tally.dead_letters == {"UNDECODABLE": 1}
    assert tally.repeated == 1
    counted = Counter[tuple[str, str]]()
    for (_, status, code), count in tally.answers.items():
        counted[status, code] += count
    assert counted == statuses(bundles)
    served, _ = shard.send(events.join(2))
    assert served.answers == {("earlier", "assigned", ""): 1}


def test_a_batch_measures_the_clusters_it_touched() -> None:
    """Saturated, offline and waiting are counted as they are after the batch."""
    shard, events, other = CountedShard(), Events(), Events("c2", first=100)
    shard.send(*other.joins(0, 1))
    tally, _ = shard.send(
        events.join(0, capacity=2),
        *events.joins(1, 2),
        events.leave(2, mode=LeaveMode.OFFLINE),
        events.create("a", 2, 2),
        events.create("b", 1, 5, on_shortage=OnShortage.WAIT),
    )
    capacity = 2 + 6_998
    assert tally.clusters == {
        "c1": Figures(
            ring=1,
            saturated=1,
            offline=1,
            capacity=capacity,
            used=4,
            replicas=4,
            partitions=2,
            topics=1,
            waiting=1,
        )
    }
    assert tally.clusters["c1"].share == 4 / capacity
    assert tally.cluster_count == 2


def test_what_is_too_much_for_one_batch_is_measured_with_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch that touches every cluster costs no more than a part of them."""
    monkeypatch.setattr(shard_batch_module, "MEASURED_MAX", 3)
    shard = CountedShard()
    names = [f"c{number}" for number in range(7)]
    first, _ = shard.send(*(Events(name).join(0) for name in names))
    second, _ = shard.send(b"no event")
    third, _ = shard.send(b"no event")
    assert [list(each.clusters) for each in (first, second, third)] == [
        names[:3],
        names[3:6],
        names[6:],
    ]
    assert first.cluster_count == 7


def test_what_could_be_better_is_looked_for_in_a_small_part_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One cluster is searched, then none until the rest is over; none is left out."""
    monkeypatch.setattr(tally_module, "SEARCH_SECONDS", 0.0)
    monkeypatch.setattr(tally_module, "REST", 10**6)
    shard = CountedShard()
    names = ["a", "b", "c"]
    joins = [join for name in names for join in Events(name).racks({"r": [0, 1], "s": [2]})]
    shard.send(*joins)
    creates = [Events(name, first=50).manual("t", [0, 1], [0, 2]) for name in names]
    found: list[dict[str, tuple[int, int]]] = []
    for sent in (creates, [b"no event"], [b"no event"], [b"no event"]):
        shard.clusters.rests_until = 0.0
        tally, _ = shard.send(*sent)
        figures = {name: (each.few_racks, each.one_leader) for name, each in tally.clusters.items()}
        found.append(figures)
        assert not shard.send(b"no event")[0].clusters  # It rests.
    zero, bad = (0, 0), (1, 1)
    assert found == [{"a": zero, "b": bad, "c": zero}, {"c": bad}, {"a": bad}, {}]
    shard.clusters.rests_until = 0.0
    gone, _ = shard.send(Events("a", first=90).delete("t"))
    assert gone.clusters["a"].few_racks == 0


def test_what_followers_saw_last_is_shown() -> None:
    """Of one that looks at no topics only how long ago that is."""
    metrics = Metrics(clock=lambda: 1_000.0)
    assert not [name for name, *_ in scraped(metrics) if "follow" in name]
    metrics.looks = {"c1": (990.0, 3), "c2": (400.0, None)}
    found = {name: value for name, value in scraped(metrics).items() if "follow" in name[0]}
    assert found == {
        (f"{PREFIX}follow_age_seconds", "c1"): 10,
        (f"{PREFIX}follow_age_seconds", "c2"): 600,
        (f"{PREFIX}follow_partitions_ahead", "c1"): 3,
    }


def test_a_batch_counts_when_it_is_committed() -> None:
    """By shards together."""
    metrics = Metrics(clock=lambda: 1_007.5)
    one: Counter[Answered] = Counter({("create", "assigned", ""): 3})
    two: Counter[Answered] = Counter({("create", "assigned", ""): 2, ("grow", "rejected", "X"): 1})
    report(metrics, Tally(answers=one), Tally(answers=two, dead_letters=Counter(B=2)))
    found = scraped(metrics)
    expected = {
        ("answers_total", "", "create", "assigned"): 5,
        ("answers_total", "X", "grow", "rejected"): 1,
        ("dead_letters_total", "B"): 2,
        ("events_total", "topic-events"): 2,
        ("messages_sent_total",): 5,
        ("batches_total",): 1,
        ("replays_skipped_total",): 0,
        ("marker_batch",): 3,
        ("marker_age_seconds",): 7.5,
        ("batch_part_seconds_total", "send"): 0.25,
    }
    found = {(name.removeprefix(PREFIX), *labels): found[name, *labels] for name, *labels in found}
    assert {place: found[place] for place in expected} == expected


def test_a_batch_that_was_sent_before_is_a_replay_and_nothing_else() -> None:
    """The process before has counted it, or might have: twice would be wrong in either case."""
    metrics = Metrics()
    metrics.begin(MARKER, at=900.0)
    figures = Figures(ring=3, replicas=7)
    answers: Counter[Answered] = Counter({("create", "assigned", ""): 3})
    tally = Tally(answers=answers, clusters={"c1": figures}, cluster_count=2)
    report(metrics, tally, is_replay=True)
    found = scraped(metrics)
    assert not [name for name in found if name[0].startswith("spu_assigner_answers")]
    assert found["spu_assigner_replays_skipped_total",] == 1
    assert found["spu_assigner_batches_total",] == 0
    assert found["spu_assigner_cluster_ring_size", "c1"] == 3  # as it is after the batch
    assert found["spu_assigner_clusters", "unmeasured"] == 1


def test_only_the_largest_clusters_have_a_name() -> None:
    """Labels stay few with a hundred thousand clusters; the rest is one sum."""
    metrics, count = Metrics(), CLUSTERS_SHOWN + 30
    clusters = {f"c{n:03}": Figures(replicas=n, capacity=2 * n, used=n) for n in range(count)}
    for _ in range(2):
        report(metrics, Tally(clusters=clusters, cluster_count=count))
    found = scraped(metrics)
    named = [name[1] for name in found if name[0] == "spu_assigner_cluster_replicas"]
    assert named == [*(f"c{n:03}" for n in range(30, count)), OTHERS]
    assert found["spu_assigner_cluster_replicas", OTHERS] == sum(range(30))
    assert found["spu_assigner_cluster_capacity_share", OTHERS] == 0.5
    assert (
        found["spu_assigner_clusters", "measured"] == count - 1
    )  # Nothing is kept of an empty one.


def test_the_largest_share_of_each_resource_is_that_of_the_last_batch() -> None:
    """A cluster that has none any more has no series; the others together have none at all."""
    metrics, figures = Metrics(), {"c1": Figures(), "c2": Figures()}
    shares = {"c1": {"disk_bytes": 0.5}, "c2": {"disk_bytes": 1.25, "cores_milli": 0.0}}
    report(metrics, Tally(clusters=figures, shares=shares))
    report(metrics, Tally(clusters={"c1": Figures()}))
    found = {
        name[1:]: value
        for name, value in scraped(metrics).items()
        if name[0] == "spu_assigner_cluster_resource_share"
    }
    assert found == {("c2", "disk_bytes"): 1.25, ("c2", "cores_milli"): 0.0}


def test_sparks_page_shows_the_sums_of_a_batch_and_its_fullest_cluster() -> None:
    """Of two shards; lag is that of all partitions."""
    metrics = Metrics()
    first = Tally(
        answers={("create", "created", ""): 2, ("create", "rejected", "RING_TOO_SMALL"): 1},
        dead_letters={"KEY_MISSING": 1},
        clusters={"roomy": Figures(ring=9, capacity=90, used=9)},
    )
    second = Tally(
        answers={("delete", "rejected", "UNKNOWN_TOPIC"): 1},
        clusters={"full": Figures(ring=2, saturated=4, capacity=60, used=50)},
    )
    report(metrics, first, second)
    metrics.ends({("e", 0): (0, 15), ("e", 1): (0, 12)})
    assert metrics.batch_figures([first, second]) == (2, 4, 2, 1, 2, 4, 7)
    assert metrics.batch_figures([]) == (0, 0, 0, 0, 0, 0, 7)


def test_lag_is_what_no_committed_batch_has_read() -> None:
    """By the marker and by Spark, whichever is further; nothing read: from the first offset on."""
    metrics = Metrics()
    metrics.begin(MARKER, at=0.0)
    metrics.progress({"sources": [{"endOffset": {"e": {"1": 12}}}]})
    metrics.ends({("e", 0): (0, 15), ("e", 1): (0, 12), ("e", 2): (4, 9), ("e", 3): (0, 0)})
    lag = {name[1:]: value for name, value in scraped(metrics).items() if "lag" in name[0]}
    assert lag == {("0", "e"): 5, ("1", "e"): 0, ("2", "e"): 5, ("3", "e"): 0}
    metrics.ends({})
    assert not [name for name in scraped(metrics) if "lag" in name[0]]


def test_a_batch_s_time_is_reported_with_its_parts() -> None:
    """As Spark measures it."""
    metrics = Metrics()
    operators = [{"numRowsTotal": 4, "memoryUsedBytes": 100}]
    durations = {"triggerExecution": 450, "addBatch": 300, "walCommit": 5}
    for _ in range(2):
        metrics.progress({"durationMs": durations, "stateOperators": operators})
    metrics.progress({"durationMs": {"triggerExecution": 500_000}})
    found = scraped(metrics)
    assert found["spu_assigner_batch_seconds_bucket", "0.3"] == 0
    assert found["spu_assigner_batch_seconds_bucket", "0.5"] == 2
    assert found["spu_assigner_batch_seconds_bucket", "120.0"] == 2
    assert found["spu_assigner_batch_seconds_bucket", "+Inf"] == 3
    assert found["spu_assigner_batch_seconds_sum",] == pytest.approx(500.9)
    assert found["spu_assigner_batch_part_seconds_total", "add_batch"] == pytest.approx(0.6)
    assert found["spu_assigner_state_rows",] == 4


def test_a_query_without_a_sign_of_life_is_stuck() -> None:
    """A restart fixes it; while the job starts nobody expects one."""
    now = 50.0
    health = JobHealth("q", clock=lambda: now)
    now += 2 * SILENCE_SECONDS_MAX
    assert health.live()["live"]
    assert health.ready()["reason"] == "it is starting"
    health.begun()
    assert health.ready()["ready"]
    now += SILENCE_SECONDS_MAX
    assert health.live()["live"]
    now += 1
    assert not health.live()["live"]
    assert not health.ready()["ready"]
    assert "no sign of life from the query for 301 s" in str(health.live()["reason"])
    health.sign(batch=4)
    assert health.live()["last_batch"] == 4
    assert health.live()["live"]


def test_an_ended_query_is_neither_live_nor_ready_until_it_is_resumed() -> None:
    """The first reason is the one that helps."""
    health = JobHealth("q")
    health.begun()
    health.ended("Spark's JVM does not answer")
    health.ended("the query has ended")
    for verdict in (health.live(), health.ready()):
        assert verdict["reason"] == "Spark's JVM does not answer"
    health.resumed()
    assert health.live()["live"]
    assert health.ready()["ready"]


Ask = Callable[..., tuple[int, str, bytes]]


@pytest.fixture
def health() -> JobHealth:
    return JobHealth("q")


@pytest.fixture
def ask(health: JobHealth) -> Iterator[Ask]:
    """A server on a free port; gives status, type and body."""
    listening = listen(Settings.load(flags={"metrics_port": "0"}, environ={}))
    assert listening is not None
    metrics = Metrics()
    add_job(metrics, health, query="q")
    server = MetricsServer(listening, application(metrics.registry, health))

    def asked(path: str, method: str = "GET") -> tuple[int, str, bytes]:
        request = urllib.request.Request(server.url + path, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.headers["Content-Type"], answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers["Content-Type"], error.read()

    yield asked
    server.close()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(server.url, timeout=5)


def test_the_server_answers_what_is_to_be_read_and_no_more(ask: Ask, health: JobHealth) -> None:
    """Health as JSON with a status that an orchestrator acts on."""
    status, kind, body = ask("/metrics")
    assert status == 200
    assert kind.startswith("text/plain; version=")
    assert b"\nspu_assigner_ready 0.0\n" in body
    assert ask("/live")[:2] == (200, "application/json")
    status, _, body = ask("/ready")
    assert status == 503
    assert json.loads(body)["ready"] is False
    health.begun()
    assert ask("/ready")[0] == 200
    assert ask("/metrics", "HEAD")[::2] == (200, b"")
    assert ask("/metrics", "POST")[0] == 405
    assert ask("/secret/../../etc/passwd")[0] == 404
    assert ask("/%ff%00<script>")[::2] == (404, b"there are /metrics, /live, /ready\n")


def test_a_job_refuses_foreign_names_where_only_this_machine_can_ask() -> None:
    """In a container it listens on all addresses, and Prometheus calls it by another name."""
    for host, status in (("127.0.0.1", 400), ("0.0.0.0", 200)):
        flags = {"metrics_port": "0", "metrics_host": host}
        watch = Watch(Settings.load(flags=flags, environ={}))
        port = (watch.url or "").split(":")[2].partition("/")[0]
        connection = HTTPConnection("127.0.0.1", int(port), timeout=30)
        connection.request("GET", "/metrics", headers={"Host": "job.example"})
        assert connection.getresponse().status == status
        connection.close()
        trigger = watch._server._server.trigger  # type: ignore[union-attr]  # it listens
        pull = trigger._physical_pull  # The server is awake before it is woken: it closes once.
        trigger._physical_pull = lambda pull=pull: [pull(), time.sleep(0.05), pull()]
        watch.close()


def test_the_next_free_port_is_listened_on_or_none() -> None:
    """Two jobs on one machine have the same settings; 192.0.2.0/24 is nobody's."""

    def listening(**flags: str) -> socket.socket | None:
        return listen(Settings.load(flags=flags, environ={}))

    with listening(metrics_port="0") as first:  # type: ignore[union-attr]  # there is one
        port = first.getsockname()[1]
        with listening(metrics_port=str(port)) as second:  # type: ignore[union-attr]
            assert second.getsockname()[0] == "127.0.0.1"
            assert second.getsockname()[1] != port
    assert listening(metrics_port="off") is listening(metrics_port="") is None
    refused = r"'192\.0\.2\.1', port 4060, .*SPU_ASSIGNER_METRICS_HOST"
    with pytest.raises(SettingsError, match=refused):
        listening(metrics_host="192.0.2.1")
