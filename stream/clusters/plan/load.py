"""What a plan costs: bytes to be copied, load of brokers before and after; a pure function.

Rules: load is that of all topics in Kafka, mapped or not; of those that this user may not see, only
replicas and bytes are known, as brokers report them. A broker leads the partitions whose lists
begin with it: the preferred leaders, which do not change with a restart. A replica that comes is
copied whole; its bytes are those of the largest replica. Of one that Kafka is copying already only
the rest counts. A replica that goes frees its own bytes. What no broker reports is not known, and
never counted as nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import chain

from spu_assigner.stream.clusters.plan.model import (
    BrokerLoad,
    ChangeKind,
    KafkaCluster,
    PlanLoad,
    TopicsPlan,
)
from spu_assigner.stream.kafka.log_dirs import ReplicaSizes, UnseenReplicas


def plan_load(
    plan: TopicsPlan, cluster: KafkaCluster, sizes: ReplicaSizes, unseen: UnseenReplicas
) -> PlanLoad:
    """What a plan costs."""
    counts: defaultdict[str, Counter[int]] = defaultdict(Counter)  # by field of BrokerLoad
    before = {topic: cluster.rows(topic) or () for topic in cluster.topics}
    after = {**before, **{change.topic: change.after for change in plan.changes}}
    for when, topics in (("before", before), ("after", after)):
        for row in chain.from_iterable(topics.values()):
            counts[f"replicas_{when}"].update(row)
            counts[f"leaders_{when}"][row[0]] += 1
        for held in unseen.sizes.values():
            counts[f"replicas_{when}"].update(held.keys())
    deleted = {change.topic for change in plan.of(ChangeKind.DELETE)}
    freed: Counter[int] = Counter()
    for (topic, number), held in {**sizes.sizes, **unseen.sizes}.items():
        if topic in before or (topic, number) in unseen.sizes:
            counts["bytes_before"].update(held)
            freed.update(held if topic in deleted else {})
    copies = unsized = 0
    for change in plan.of(ChangeKind.CHANGE):
        for number, partition in enumerate(cluster.topics[change.topic]):
            holders, coming = {*partition.replicas}, {*change.after[number]}
            held = sizes.sizes.get((change.topic, number), {})
            whole = max(held.values(), default=None)
            copied = holders & partition.in_sync if number in change.moving else holders
            for broker in coming - copied:
                copies += 1
                unsized += whole is None
                counts["bytes_in"][broker] += (whole or 0) - held.get(broker, 0)
            for broker in holders - coming:
                counts["bytes_out"][broker] += held.get(broker, 0)
    is_known = not copies or unsized < copies

    def load(broker: int) -> BrokerLoad:
        numbers = {name: count[broker] for name, count in counts.items()}
        size = numbers.pop("bytes_before", 0)
        came, gone = numbers.get("bytes_in", 0), numbers.get("bytes_out", 0) + freed[broker]
        is_reported = broker in sizes.brokers
        return BrokerLoad(
            broker=broker,
            bytes_before=size if is_reported else None,
            bytes_after=size + came - gone if is_reported else None,
            **numbers,
        )

    brokers = {*cluster.brokers, *counts["replicas_before"], *counts["replicas_after"]}
    return PlanLoad(
        replicas_to_copy=copies,
        replicas_unsized=unsized,
        bytes_to_copy=counts["bytes_in"].total() if is_known else None,
        brokers=tuple(map(load, sorted(brokers))),
    )
