"""What a checkpoint on S3 costs a lone request: beside one on a disk, on a local S3 server.

    python tests/bench/store/s3.py [--write] [--creates 200]

Two jobs on one broker, which differ in the place of their checkpoint, are asked for one create each
in turn. The server is moto, on the loopback, in Python: it is not S3, whose requests take longer
(some 20 to 50 ms each), so what counts is how many requests a batch makes, and how many of them
one after the other. It is counted what the server was asked for.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from spu_assigner.core.base.events import Event
from spu_assigner.schemas.messages.codec import encode_event
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker

sys.path.insert(0, str(Path(__file__).parents[2]))  # for `support`, as pytest does
from support.bench.figures import keep, percentiles, say
from support.bench.workload import CLUSTERS, SPUS, Client, creates, joins
from support.job.programs import running
from support.job.s3_server import BUCKET, S3Server, s3_server

WARM_UP: Final = 100  # creates of each job
WATCHED: Final = "/.owners"  # an owner's looks, every few seconds, are of no batch


class Job:
    """One of the two, with topics of its own."""

    def __init__(
        self, name: str, checkpoint: str, broker: EmbeddedBroker, environ: dict[str, str]
    ) -> None:
        self.name = name
        program = str(Path(sys.executable).with_name("spu-assigner"))
        self.environ = {
            "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "SPU_ASSIGNER_TOPIC_PREFIX": f"{name}.",
            "SPU_ASSIGNER_CHECKPOINT": checkpoint,
            "SPU_ASSIGNER_UI_PORT": "0",
            "SPU_ASSIGNER_METRICS_PORT": "off",
            **environ,
        }
        command = [program, "topics", "create"]
        subprocess.run(command, env={**os.environ, **self.environ}, check=True, stdout=sys.stderr)
        self.command = [program, "run"]
        self.times: list[float] = []

    def client(self, source: str, target: str, broker: EmbeddedBroker) -> Client:
        return Client(broker.bootstrap_servers, f"{self.name}.{source}", f"{self.name}.{target}")


def requests(store: S3Server) -> list[str]:
    """What the server was asked for, but for the owner's looks."""
    lines = store.requests.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if WATCHED not in line]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--creates", type=int, default=200)
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="s3-bench-")))
        broker = stack.enter_context(EmbeddedBroker(folder / "broker"))
        store = stack.enter_context(s3_server(folder))
        jobs = [
            Job("disk", str(folder / "checkpoint"), broker, {}),
            Job("s3", f"s3a://{BUCKET}/bench", broker, store.environ),
        ]
        clients = {}
        for job in jobs:
            log = folder / f"{job.name}.log"
            stack.enter_context(running(job.command, log, job.environ, cwd=folder))
            spus = job.client("spu-events", "ring-events", broker)
            spus.send(messages(joins()))
            spus.take(CLUSTERS * SPUS)
            spus.close()
            clients[job.name] = job.client("topic-events", "replica-map", broker)
            say(f"{job.name}: started")
        for number, (key, value) in enumerate(messages(creates(0, WARM_UP + given.creates))):
            if number == WARM_UP:
                before = requests(store)
            for job in jobs:
                took = clients[job.name].ask(key, value)
                if number >= WARM_UP:
                    job.times.append(took)
        made = [line.split()[1] for line in requests(store)[len(before) :]]
        figures = {f"{job.name}_ms": percentiles(job.times) for job in jobs}
        figures["requests_a_create"] = {
            method: round(made.count(method) / given.creates, 1) for method in sorted({*made})
        }
        say(str(figures))
        for client in clients.values():
            client.close()
    if given.write:
        sizes = {"creates": given.creates, "warm_up": WARM_UP, "server": "moto on the loopback"}
        keep("s3", sizes=sizes, figures=figures, show=False)


def messages(events: list[Event]) -> list[tuple[str, bytes]]:
    return [(event.cluster_id, encode_event(event)) for event in events]


if __name__ == "__main__":
    main()
