"""On paper: 100 executors and 100,000 clusters, from what was measured on one machine.

    python tests/bench/scale/scale_plan.py [--write]

Reads results/growth.json, sink.json and scaling.json, and computes for three designs how many
creates of 16 partitions × 3 replicas a second each part could take, and so what saturates first:

- one job, as it is: executors decide, then one producer in the driver sends;
- several jobs, each on the clusters of its topic prefix, each with its own driver and producer;
- a producer in each shard server: each shard's part of a batch is a transaction of its own.

A batch's steps follow each other, so its time is their sum. Nothing here was run: executors are
taken to be as fast as these cores, and each machine's network to carry 10 Gbit/s each way. With
--write the figures go to results/scale_plan.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from spu_assigner.schemas.messages.codec import encode_event
from spu_assigner.stream.kafka.config.settings import TOPIC_EVENTS_PER_BATCH_MAX, Settings
from support.bench.figures import RESULTS, STORED, keep
from support.bench.loadrun import say
from support.bench.workload import creates

EXECUTORS: Final = 100
CORES: Final = 2  # of an executor
CLUSTERS: Final = 100_000
TOPICS: Final = 100  # of a cluster
JOBS: Final = (4, 10, 25)
BATCH: Final = Settings().topic_events_per_batch  # creates of a batch of a backlog
BROKERS: Final = 6
BROKER_CORES: Final = 8
COPIES: Final = 3  # of each message, on the brokers
NETWORK: Final = 10e9 / 8  # bytes a second, of one machine, each way
ROW_SIZE: Final = 100  # of an event in the shuffle, besides key and value


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What one create takes, in seconds of one core, and what a batch takes besides."""

    decide: float  # in JVM, worker and shard server: all of the job but the sink
    send: float  # in the driver, from the first message to the commit: nothing else is done then
    send_cpu: float
    broker: float
    bytes_: float
    messages: float
    batch: float  # of a batch that decides and sends next to nothing
    shard: float  # of each shard of a batch, of one core
    topic_bytes: float  # in a shard server
    event_bytes: float  # of a request's row on its way to its shard

    @classmethod
    def measured(cls) -> Costs:
        growth, sink, scaling = (_figures(name) for name in ("growth", "sink", "scaling"))
        usual = sink["16 partitions"]
        count = usual["creates_of_a_batch"]
        messages = usual["messages_of_a_batch"] / count
        send_cpu = usual["cpu_s_per_100k_messages"] / 100_000 * messages
        few, many = growth["few"], growth["many"]
        job = few["cpu_s_per_100k_creates"]["median"] / 100_000
        p50 = {
            each["shards"]: each["latency_ms"]["p50"] / 1000
            for each in scaling.values()
            if isinstance(each, dict) and each["master"].startswith("local[")
        }
        least, most = min(p50), max(p50)
        keepers = [_keepers(each["peak_mb_after_restart"]) for each in (many, few)]
        return cls(
            decide=job - send_cpu,
            send=usual["seconds_of_a_batch"]["median"] / count,
            send_cpu=send_cpu,
            broker=usual["broker_cpu_s_per_100k_messages"] / 100_000 * messages,
            bytes_=usual["mb_of_a_batch"] * 1e6 / count,
            messages=messages,
            batch=p50[least],
            shard=max(0.0, (p50[most] - p50[least]) / (most - least)) * CORES,
            topic_bytes=(keepers[0] - keepers[1]) * 1e6 / (many["topics"] - few["topics"]),
            event_bytes=fmean(
                len(event.cluster_id) + len(encode_event(event)) + ROW_SIZE
                for event in creates(0, CLUSTERS // 100)
            ),
        )


def _figures(name: str) -> dict[str, Any]:
    """Of this run, where it measured that; else those that are stored."""
    here = RESULTS / f"{name}.json"
    kept = json.loads((here if here.exists() else STORED / here.name).read_text())
    figures: dict[str, Any] = kept["figures"]
    return figures


def _keepers(peaks: dict[str, float]) -> float:
    return sum(size for role, size in peaks.items() if role.startswith("keeper"))


def batch_seconds(
    costs: Costs, creates: int, *, cores: int, driver_sends: bool
) -> dict[str, float]:
    """What each step of a batch takes, where each core has one shard."""
    deciding = costs.decide + (0.0 if driver_sends else costs.send_cpu)
    return {
        "fixed": costs.batch + costs.shard,
        "deciding": creates * deciding / cores,
        "sending": creates * costs.send if driver_sends else 0.0,
    }


def rates(costs: Costs) -> dict[str, Any]:
    """Creates a second, by design."""
    cores = EXECUTORS * CORES
    brokers = BROKERS * BROKER_CORES / (costs.broker * COPIES)

    def design(jobs: int, *, driver_sends: bool) -> dict[str, Any]:
        # As much for each executor as now, up to the largest limit of a job.
        batch = min(TOPIC_EVENTS_PER_BATCH_MAX, BATCH * max(1, cores // jobs // CORES))
        steps = batch_seconds(costs, batch, cores=cores // jobs, driver_sends=driver_sends)
        rate = jobs * batch / sum(steps.values())
        first = max(steps, key=lambda step: steps[step])
        return {
            "jobs": jobs,
            "creates_of_a_batch": batch,
            "seconds_of_a_batch": {step: round(took, 3) for step, took in steps.items()},
            "creates_per_s": round(min(rate, brokers)),
            "mb_per_s": round(min(rate, brokers) * costs.bytes_ / 1e6, 1),
            "executors_busy": round(steps["deciding"] / sum(steps.values()), 3),
            "saturates_first": "brokers" if brokers < rate else first,
        }

    return {
        "one job": design(1, driver_sends=True),
        **{f"{jobs} jobs by prefix": design(jobs, driver_sends=True) for jobs in JOBS},
        "a producer in each keeper": design(1, driver_sends=False),
        "limits_creates_per_s": {
            "executors": round(cores / costs.decide),
            "one_producer_in_the_driver": round(1 / costs.send),
            "brokers": round(brokers),
            # All rows but those that are where they belong already pass between executors.
            "shuffle": round(EXECUTORS * NETWORK / costs.event_bytes),
            "network_of_the_driver": round(NETWORK / costs.bytes_),
        },
    }


def state(costs: Costs) -> dict[str, Any]:
    """What the state of all takes."""
    topics = CLUSTERS * TOPICS
    return {
        "topics": topics,
        "keeper_bytes_per_topic": round(costs.topic_bytes),
        "keepers_mb_of_an_executor": round(topics * costs.topic_bytes / EXECUTORS / 1e6),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="100 executors and 100,000 clusters, on paper.")
    parser.add_argument("--write", action="store_true", help="keep results/scale_plan.json")
    asked = parser.parse_args()
    costs = Costs.measured()
    figures = {
        "a_create": {
            "deciding_us": round(costs.decide * 1e6, 1),
            "sending_us": round(costs.send * 1e6, 1),
            "sending_cpu_us": round(costs.send_cpu * 1e6, 1),
            "broker_us": round(costs.broker * 1e6, 1),
            "bytes": round(costs.bytes_),
            "event_bytes": round(costs.event_bytes),
            "messages": round(costs.messages, 2),
        },
        "a_batch": {
            "fixed_ms": round(costs.batch * 1e3, 1),
            "shard_ms_of_a_core": round(costs.shard * 1e3, 1),
        },
        **rates(costs),
        "state": state(costs),
    }
    for name, value in figures.items():
        say(f"  {name:<26} {value}")
    if asked.write:
        sizes = {"executors": EXECUTORS, "cores": CORES, "clusters": CLUSTERS, "topics": TOPICS}
        sizes |= {"brokers": BROKERS, "broker_cores": BROKER_CORES, "copies": COPIES}
        keep("scale_plan", sizes=sizes, figures=figures, show=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
