"""`adopt` on three real brokers: topics that others made enter the state as they are."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator

import pytest
from click.testing import Result
from confluent_kafka.admin import AdminClient, NewTopic
from spu_assigner.core.base.events import SpuId
from spu_assigner.stream.clusters.follow.watched import WatchedCluster
from spu_assigner.stream.kafka.topic_admin import create_topics
from support.job.kafka_operator import SEEN_SECONDS_MAX, Lists, Operator
from support.job.small_job import SmallJob, small_job
from support.kafka.reading import committed
from support.placers.kafka_reassign import LOG_DIRS_TOOL, run_tool

TOPICS = 30


@pytest.fixture
def job(operator: Operator) -> Iterator[SmallJob]:
    """A job that answers, and has seen nothing yet."""
    create_topics(operator.cluster.client, prefix=operator.prefix, partitions=2)
    with small_job(operator.settings()) as job, job.answering():
        yield job


def adopt(operator: Operator, *options: object) -> Result:
    """Of the test's own topics: others are in the cluster, too."""
    return operator("adopt", "--cluster", "c1", "--topics", f"{operator.prefix}*", *options)


def make(operator: Operator, topics: dict[str, Lists]) -> None:
    """All at once."""
    new = [
        NewTopic(operator.name(topic), len(lists), replica_assignment=lists)
        for topic, lists in topics.items()
    ]
    with AdminClient(operator.cluster.client) as admin:
        # Kafka itself makes topics of one replication factor; lists of several come by moves.
        for future in admin.create_topics(new).values():
            future.result(timeout=60)
    operator.wait(list(topics), lambda found: found == topics)


def mapped(job: SmallJob, operator: Operator) -> dict[str, Lists]:
    """As the job knows it."""
    topics = job.states()["c1"].topics
    return {
        name.removeprefix(operator.prefix): topic.replicas.lists().tolist()
        for name, topic in topics.items()
    }


def sent(operator: Operator) -> int:
    """The events in both inputs."""
    names = [operator.name("spu-events"), operator.name("topic-events")]
    return sum(len(committed(operator.cluster.bootstrap_servers, name)) for name in names)


def test_thirty_topics_are_adopted_once_and_nothing_is_left_to_do(
    operator: Operator, job: SmallJob
) -> None:
    """The brokers join first; `plan` and `apply` do nothing afterwards; the audit is clean."""
    topics = {f"t{n:02}": [[1 + n % 3], [2 - n % 2]][: 1 + n % 2] for n in range(TOPICS)}
    make(operator, topics)
    looked = adopt(operator, "--dry-run")
    assert (looked.exit_code, sent(operator)) == (2, 0), looked.output
    assert looked.stdout.splitlines()[0] == "would join  SPU 1: rack a, 1 core, 6998 slots"
    adoption = f"would adopt  topic {operator.name('t00')}: 1 partition of 1 replica; it has no map"
    assert adoption in looked.stdout
    assert looked.stdout.splitlines()[-1] == f"3 brokers to join, {TOPICS} topics to adopt"
    done = adopt(operator)
    assert (done.exit_code, done.stderr) == (
        0,
        f"adopt: sends {TOPICS + 3} events and waits for answers\n",
    ), done.output
    assert done.stdout.splitlines()[-1] == f"{TOPICS} topics adopted"
    assert mapped(job, operator) == topics == operator.lists(*topics)
    count = sent(operator)
    assert count == TOPICS + 3

    planned = operator.plan()
    assert planned.exit_code == 0
    assert planned.stdout.splitlines()[0] == f"= {TOPICS} topics as mapped"
    assert planned.stdout.splitlines()[1].startswith("nothing to do: ")
    assert "not made by apply" not in planned.stdout
    applied = operator.apply("--delete", "--yes")
    assert (applied.exit_code, applied.stderr) == (0, "")
    assert f"0 created, 0 grown, 0 deleted; {TOPICS} as mapped before" in applied.stdout
    again = adopt(operator)
    assert (again.exit_code, again.stderr) == (0, "")
    assert again.stdout.splitlines() == [f"0 topics adopted, {TOPICS} as mapped before"]
    assert adopt(operator, "--dry-run").exit_code == 0
    misspelt = operator("adopt", "--cluster", "cl", "--topics", f"{operator.prefix}*")
    assert misspelt.exit_code == 1
    assert "cluster 'cl' has no SPUs, and the brokers of Kafka cluster " in misspelt.stderr
    assert "are SPUs of cluster 'c1'; check --cluster, or say --accept-cluster" in misspelt.stderr
    assert sent(operator) == count
    audited = operator("verify", "--strict")
    assert audited.exit_code == 0, audited.output


def test_a_topic_that_is_deleted_or_changed_meanwhile_is_reported_and_the_next_run_ends_it(
    operator: Operator, job: SmallJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By others, between the look and the answers."""
    make(operator, {"a": [[1]], "b": [[1]], "c": [[1]]})
    looks = []
    look = WatchedCluster.topics

    def disturbed(self: WatchedCluster, *given: object) -> object:
        looks.append(given)
        if len(looks) == 2:
            operator.remove("a")
            operator.reassign({"b": [[2]]})
        return look(self, *given)  # type: ignore[arg-type]  # as it is called

    monkeypatch.setattr(WatchedCluster, "topics", disturbed)
    done = adopt(operator)
    assert done.exit_code == 1, done.output
    why = "while it was adopted; run this again"
    assert done.stdout.splitlines()[-3:-1] == [
        f"! {operator.name('a')}  was deleted {why} with --forget-gone",
        f"! {operator.name('b')}  was changed by others {why}",
    ]
    assert set(operator.recorded()) == {"c"}
    again = adopt(operator, "--forget-gone")
    assert again.exit_code == 0, again.output
    assert mapped(job, operator) == {"b": [[2]], "c": [[1]]} == operator.lists("a", "b", "c")
    assert set(operator.recorded()) == {"b", "c"}


def log_sizes(operator: Operator, *topics: str) -> dict[int, dict[str, list[int]]]:
    """By `kafka-log-dirs`: of each broker and topic the bytes of each replica, by partition."""
    names = ",".join(map(operator.name, topics))
    servers = operator.cluster.bootstrap_servers
    printed = run_tool(servers, "--describe", "--topic-list", names, tool=LOG_DIRS_TOOL)
    found: dict[int, dict[str, list[int]]] = {}
    for broker in json.loads(printed.splitlines()[-1])["brokers"]:
        sizes = found.setdefault(broker["broker"], {})
        for each in broker["logDirs"][0]["partitions"]:
            topic = each["partition"].rpartition("-")[0].removeprefix(operator.prefix)
            sizes.setdefault(topic, []).append(each["size"])
    return found


def test_what_adopted_topics_hold_loads_the_spus_as_kafka_reports_it(
    operator: Operator, job: SmallJob
) -> None:
    """And is sent again once it differs by more than a tenth, not before."""
    make(operator, {"large": [[1]], "skewed": [[1, 2], [1, 2], [1, 2]], "empty": [[3]]})
    operator.write("large", *(os.urandom(50_000) for _ in range(40)))
    operator.write("skewed", *(os.urandom(30_000) for _ in range(10)))
    operator.write("skewed", os.urandom(7), partition=2)
    deadline = time.monotonic() + SEEN_SECONDS_MAX
    while (logs := log_sizes(operator, "large", "skewed"))[1]["skewed"] != logs[2].get("skewed"):
        assert time.monotonic() < deadline, logs
    disk = ("--resources", "disk_bytes=3000000")
    joined = operator(
        *("produce", "spu-joined", "--cluster", "c1", "--spu-id", 1, "--rack", "a", *disk, "--wait")
    )
    assert joined.exit_code == 0, joined.output
    done = adopt(operator, *disk, "-o", "json")
    assert done.exit_code == 0, done.output
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["spu_id"] for each in events if each["type"] == "spu_joined"] == [2, 3]
    sums = {broker: sum(map(sum, of_topics.values())) for broker, of_topics in logs.items()}
    assert sums[1] > 2_300_000
    assert sums[2] > 300_000
    ledger = job.states()["c1"].ledger
    loads = {broker: ledger.used(SpuId(broker)).get("disk_bytes", 0) for broker in (1, 2, 3)}
    assert all(0 <= loads[broker] - sums.get(broker, 0) < 3 for broker in loads), (loads, sums)
    need = job.states()["c1"].topics[operator.name("large")].need
    assert need is not None
    assert need.demand == (("disk_bytes", sum(logs[1]["large"])),)

    count = sent(operator)
    operator.write("large", os.urandom(100_000))  # 5 %
    again = adopt(operator)
    assert (again.exit_code, again.stdout) == (0, "0 topics adopted, 3 as mapped before\n")
    assert sent(operator) == count
    operator.write("large", os.urandom(200_000))
    looked = adopt(operator, "--dry-run")
    assert looked.exit_code == 2, looked.output
    assert looked.stdout.splitlines()[0] == (
        f"would adopt  topic {operator.name('large')}: 1 partition of 1 replica of 2.2 MiB; it "
        "holds other bytes than revision 1 of its map says"
    )
    assert adopt(operator).stdout.splitlines()[1:] == ["1 topic adopted, 2 as mapped before"]
    assert sent(operator) == count + 1
    audited = operator("verify", "--strict")
    assert audited.exit_code == 0, audited.output


def test_without_a_job_it_says_so_and_the_events_are_answered_later(operator: Operator) -> None:
    """The next run sends the same events, which changes nothing."""
    create_topics(operator.cluster.client, prefix=operator.prefix, partitions=2)
    make(operator, {"a": [[1]]})
    done = adopt(operator, "--wait", "0.5")
    assert done.exit_code == 3
    assert re.search(r"adopt: \d events? not answered within 0.5 s; is the job", done.stderr)
    with small_job(operator.settings()) as job, job.answering():
        again = adopt(operator)
        assert again.exit_code == 0, again.output
        assert mapped(job, operator) == {"a": [[1]]}
        assert job.states()["c1"].topics[operator.name("a")].revision == 1
