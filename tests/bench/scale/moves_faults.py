"""What `apply --moves` survives, on four real brokers while records are written and read.

    python tests/bench/scale/moves_faults.py [--seed 1] [--kills 30] [--write]

Broker 3 of four is replaced by broker 4 and back, slowly, while an idempotent producer writes
numbers and a consumer reads them.

- `faults`: the receiving broker is killed in a wave and started again; the only controller is
  stopped for some seconds and started again; a run is cancelled.
- `kills`: the command is killed (SIGKILL) again and again, at moments drawn from the seed: from its
  start or, every second time, from its first line. A last run finishes.

After each: every list is as mapped, no throttle is set, all checksums are those of before, the
numbers are whole and in order, no move was begun twice, and Kafka's `--list` and `--verify` agree.
It ends with an error if not. With --write the figures go to results/moves_faults.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from confluent_kafka.admin import AdminClient
from moves import AFTER, BEFORE, LIVE, MB, RATE, Bench, Traffic, Watch
from support.bench.figures import keep, say
from support.job.kafka_operator import Operator
from support.kafka.kafka_cluster import KafkaCluster
from support.kafka.moving import COMMAND, until

SLOW: Final = 3 * MB  # a second: there is always something under way
VALUES: Final = 12  # of 256 KiB in each partition
AWAY_SECONDS: Final = 5.0  # of the controller
LIFE_SECONDS: Final = (14.0, 4.0)  # of a run that is killed, at most: from start, from first line


def faults(bench: Bench) -> dict[str, Any]:
    """A broker and the controller go and come back in a wave; a cancel."""
    cluster = bench.operator.cluster
    found: dict[str, Any] = {}
    file = bench.map(AFTER)
    process = under_way(bench)
    cluster.kill(4)
    time.sleep(3.0)
    cluster.start(4)
    bench.require_end(process)
    bench.require_whole(AFTER, file)
    found["broker_killed_in_a_wave"] = "whole"
    file = bench.map(BEFORE)
    process = under_way(bench)
    with cluster.controller_stopped():
        time.sleep(AWAY_SECONDS)
    bench.require_end(process)
    bench.require_whole(BEFORE, file)
    found["controller_restarted_in_a_wave"] = "whole"
    bench.map(AFTER)
    process = under_way(bench)
    begun = time.monotonic()
    done = subprocess.run(
        [*COMMAND, "apply", "--cancel"],
        env={**os.environ, **bench.operator.environ},
        capture_output=True,
        text=True,
        check=False,
    )
    found["cancel_s"] = round(time.monotonic() - begun, 1)
    output, _ = process.communicate(timeout=60)
    say(f"  {done.stdout.strip()} {found}; {output.splitlines()[-1]}")
    with bench.mover.kafka() as kafka:
        is_quiet = kafka.ongoing() == {}
    if done.returncode or not is_quiet or bench.mover.throttles(*bench.topics, LIVE):
        raise SystemExit(f"not cancelled: {done.stdout}{done.stderr}")
    bench.require_end(bench.start())
    return found


def under_way(bench: Bench) -> subprocess.Popen[str]:
    """A run that copies something."""
    process = bench.start("--throttle", str(SLOW), "--concurrency", "100")
    with bench.mover.kafka() as kafka:
        until(lambda: len(kafka.ongoing()) > 2 or process.poll() is not None)
    if process.poll() is not None:
        raise SystemExit(process.communicate()[0])
    time.sleep(1.0)
    return process


def kills(bench: Bench, seed: int, count: int) -> dict[str, Any]:
    """Runs that are killed, then one that finishes."""
    chance = random.Random(seed)
    lists, killed, ended = AFTER, 0, 0
    file = bench.map(lists)
    watch = Watch(bench)
    begun_twice = 0
    moments: Counter[str] = Counter()
    with watch.watching():
        while killed < count:
            process = bench.start("--throttle", str(SLOW), "--concurrency", "2")
            is_from_line = bool(killed % 2)
            life = chance.uniform(0.2, LIFE_SECONDS[is_from_line])
            line = ""
            if is_from_line and process.stdout is not None:
                line = process.stdout.readline()
            try:
                process.wait(life)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                record = bench.mover.record()
                is_open = record is not None and bool(record.moves or record.throttles)
                killed += 1
                moments["kills_in_a_wave" if is_open else "kills_between"] += 1
                say(f"  kill {killed} after {life:.1f} s: {line.strip()}")
                continue
            bench.require_end(process)
            ended += 1
            begun_twice += sum(number > 1 for number in watch.begun.values())
            watch.begun.clear()
            lists = BEFORE if lists is AFTER else AFTER
            file = bench.map(lists)
        bench.require_end(bench.start("--throttle", str(RATE)))
    begun_twice += sum(number > 1 for number in watch.begun.values())
    bench.require_whole(lists, file)
    if begun_twice:
        raise SystemExit(f"{begun_twice} moves were begun twice")
    return {"kills": count, **moments, "runs_that_ended": ended, "begun_twice": begun_twice}


def main() -> None:
    """Set up, go through it, keep what was seen."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        KafkaCluster(["a", "b", "c", "d"]) as cluster,
        AdminClient(cluster.client) as admin,
    ):
        bench = Bench(Operator(cluster, "job.", admin), Path(name), VALUES)
        traffic = Traffic(bench.operator, len(BEFORE))
        with traffic.flowing():
            figures = faults(bench) | kills(bench, given.seed, given.kills)
    figures["numbers_in_order"] = traffic.written.total()
    say(json.dumps(figures))
    if given.write:
        sizes = {
            "brokers": 4,
            "mb": 2 * bench.bytes_moved // MB,
            "throttle": SLOW,
            "seed": given.seed,
        }
        keep("moves_faults", sizes=sizes, figures=figures)


if __name__ == "__main__":
    main()
