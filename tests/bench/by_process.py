"""Where the job's CPU time goes: by process and thread, for a backlog and for one create at a time.

    python tests/bench/by_process.py [--creates 100000] [--rounds 3] [--asks 100] [--policy fluvio]

The job runs as a user starts it, with a broker of its own, and the client in this process, which is
not counted. Of several rounds the one with the least CPU time is printed: other work on the machine
adds, and never takes away. What was found is kept in `profiles/`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from spu_assigner.core.base.events import Event
from spu_assigner.schemas.messages.codec import encode_event
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `support`, as pytest does
from support.bench.cpu_time import Spent, measured, processes_of
from support.bench.workload import CLUSTERS, SPUS, Client, creates, joins
from support.job.programs import running

WARM_UP: Final = 30_000
SHOWN_MIN: Final = 0.01  # of the whole; threads with less are printed together


def table_of(title: str, spent: Spent, unit: str, factor: float) -> Iterator[str]:
    """A table: by role, and by the threads that matter in it."""
    whole = spent.cpu.total()
    yield f"{title}, {unit}; {whole / spent.seconds:.2f} cores busy"
    roles = Counter[str]()
    for (role, _), seconds in spent.cpu.items():
        roles[role] += seconds
    for role, seconds in roles.most_common():
        yield f"  {role:<10}{seconds * factor:>10.2f}"
        threads = [(name, each) for (its, name), each in spent.cpu.most_common() if its == role]
        shown = [(name, each) for name, each in threads if each >= SHOWN_MIN * whole]
        for name, each in shown:
            yield f"    {name:<22}{each * factor:>10.2f}"
        rest = seconds - sum(each for _, each in shown)
        if len(shown) < len(threads):
            yield f"    {f'{len(threads) - len(shown)} others':<22}{rest * factor:>10.2f}"
    yield f"  {'job':<10}{(whole - roles['broker']) * factor:>10.2f}  without the broker"


def messages(events: Sequence[Event]) -> list[tuple[str, bytes]]:
    return [(event.cluster_id, encode_event(event)) for event in events]


def run(given: argparse.Namespace, folder: Path) -> None:
    with EmbeddedBroker(folder / "broker") as broker:
        bootstrap = broker.bootstrap_servers
        environ = {
            "KAFKA_BOOTSTRAP_SERVERS": bootstrap,
            "SPU_ASSIGNER_DEFAULT_POLICY": given.policy,
        }
        program = str(Path(sys.executable).with_name("spu-assigner"))
        subprocess.run([program, "topics", "create"], env={**os.environ, **environ}, check=True)
        command = [program, "run", "--checkpoint", str(folder / "checkpoint")]
        with running(command, folder / "log", environ) as job:
            spus = Client(bootstrap, "spu-events", "ring-events")
            spus.send(messages(joins()))
            spus.take(CLUSTERS * SPUS)
            client = Client(bootstrap, "topic-events", "replica-map")
            first = 0

            def next_creates(count: int) -> list[tuple[str, bytes]]:
                nonlocal first
                first += count
                return messages(creates(first - count, count))

            def processes() -> dict[int, str]:
                return processes_of(job, broker)

            for key, value in next_creates(20):
                client.ask(key, value)
            client.send(next_creates(WARM_UP))
            client.take(WARM_UP)
            rounds = []
            for _ in range(given.rounds):
                backlog = next_creates(given.creates)

                def answered(backlog: list[tuple[str, bytes]] = backlog) -> None:
                    client.send(backlog)
                    client.take(len(backlog))

                rounds.append(measured(processes, answered))
                print(f"{given.creates / rounds[-1].seconds:,.0f} creates/s", flush=True)
            best = min(rounds, key=lambda spent: spent.cpu.total())
            factor = 100_000 / given.creates
            title = f"backlog, {given.policy}"
            print(*table_of(title, best, "CPU s for 100,000 creates", factor), sep="\n", flush=True)
            asks = next_creates(given.asks)

            def asked() -> None:
                for key, value in asks:
                    client.ask(key, value)

            spent = measured(processes, asked)
            title = f"one create at a time, {1000 * spent.seconds / given.asks:.0f} ms each"
            print(
                *table_of(title, spent, "CPU ms for one", 1000 / given.asks), sep="\n", flush=True
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--creates", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--asks", type=int, default=100)
    parser.add_argument("--policy", default="fluvio")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spu-assigner-profile-") as folder:
        run(given, Path(folder))


if __name__ == "__main__":
    main()
