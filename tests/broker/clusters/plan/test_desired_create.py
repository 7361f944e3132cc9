"""`apply --desired FILE --create` on three real brokers: from a file to topics in Kafka."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import AdminClient, ConfigResource
from support.job.kafka_operator import Operator

ORDERS = "partitions: {}, replication_factor: 3, config: {{retention.ms: 86400000, {}}}"
TIGHT = "partitions: 2, replication_factor: 2"
ONE_DOWN = "while a broker of theirs is down,"
REFUSED = "producers with acks=all are refused"


def warning(topic: str, factor: int, least: int, what: str) -> str:
    return (
        f"apply: warning: {topic}: replication factor {factor}, min.insync.replicas {least}: "
        f"{what} drain and rebalance do not begin; raise the factor, or lower the setting"
    )


def config(operator: Operator, topic: str) -> dict[str, str]:
    """What a topic was created with."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, operator.name(topic))
    with AdminClient(operator.cluster.client) as admin:
        found = admin.describe_configs([resource])[resource].result(timeout=60)
    # 1: set for this topic.
    return {name: each.value for name, each in found.items() if each.source == 1}


def test_a_file_becomes_topics_in_one_command(operator: Operator, tmp_path: Path) -> None:
    """With their settings; what Kafka refuses and what differs is said; a repeat does nothing."""
    file = tmp_path / "topics.yaml"
    orders, tight, wrong = map(operator.name, ("orders", "tight", "wrong"))
    asked = ("--desired", file, "--create", "--wait", "240")

    def desire(**topics: str) -> None:
        lines = [f"  - {{name: {operator.name(n)}, {text}}}\n" for n, text in topics.items()]
        file.write_text(f"topics:\n{''.join(lines)}", "utf-8")

    with operator.job() as job:
        job.apply([operator.events.create(operator.name("other"), 1, 3)])
        with job.answering():
            desire(
                orders=ORDERS.format(4, "preallocate: true, min.insync.replicas: 2"),
                tight=TIGHT,
                wrong="partitions: 1, replication_factor: 3, config: {retention.mss: 1}",
            )
            first = operator.apply(*asked)
            assert first.exit_code == 1, first.output
            assert f"created  {orders}  4 partitions\n" in first.stdout
            assert first.stdout.endswith(
                "2 created, 0 grown, 0 deleted; 0 as mapped before\n"
                f"the replica maps are in topic {operator.name('replica-map')}; `spu-assigner "
                "watch --cluster c1 --from-beginning` shows them\n"
            )
            warned, refused = first.stderr.splitlines()
            assert warned == warning(tight, 2, 2, f"{ONE_DOWN} {REFUSED}, and")
            assert refused.startswith(f"apply: {wrong}: was not created: ")
            assert "retention.mss" in refused
            settings = {
                "retention.ms": "86400000",
                "preallocate": "true",
                "min.insync.replicas": "2",
            }
            assert config(operator, "orders") == settings
            maps = job.states()["c1"].topics
            lists = {
                each: maps[operator.name(each)].replicas.lists().tolist()
                for each in ("orders", "tight")
            }
            assert operator.lists("orders", "tight", "other", "wrong") == lists

            desire(orders=ORDERS.format(6, "preallocate: false"))
            grown = operator.apply(*asked)
            assert (grown.exit_code, grown.stderr) == (
                0,
                f"apply: warning: {orders}: preallocate is true in Kafka and false in the file; it "
                "stays: `kafka-configs --alter` changes it\n",
            )
            assert f"grown    {orders}  4 → 6 partitions\n" in grown.stdout
            assert len(operator.lists("orders")["orders"]) == 6
            assert config(operator, "orders") == settings

            desire(orders=ORDERS.format(6, "preallocate: true"))
            again = operator.apply(*asked)
            assert (again.exit_code, again.stderr) == (0, ""), again.stdout
            assert "= 1 topic mapped as desired\nnothing to do: " in again.stdout
            assert "0 created, 0 grown, 0 deleted; 1 as mapped before\n" in again.stdout

            few = "partitions: 1, replication_factor: 2, config: {min.insync.replicas: 3}"
            desire(few=few)
            below = operator.apply(*asked)
            expected = warning(operator.name("few"), 2, 3, f"{REFUSED}; {ONE_DOWN}")
            assert (below.exit_code, below.stderr) == (0, f"{expected}\n")
