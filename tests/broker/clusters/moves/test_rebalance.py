"""`rebalance` on three real brokers: maps and data are even, whatever happens in between."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from spu_assigner.core.base.events import ClusterRebalance
from spu_assigner.schemas.messages.codec import decode_event
from spu_assigner.stream.clusters.drain.rebalancing import MORE_TO_DO
from spu_assigner.stream.clusters.moves.run_record import Seat
from support.failpoints import Failpoint, dying_at
from support.job.kafka_operator import Operator
from support.kafka.moving import COMMAND, SECONDS_MAX, Mover
from support.kafka.reading import committed

UNEVEN = [[1, 2], [2, 1], [1, 2], [2, 1], [1, 2], [2, 1]]
VALUES = 2  # of 256 KiB in each partition
ONE = "1MB"  # has room for one partition, and not for two


def on_three(operator: Operator) -> int:
    return sum(3 in row for row in operator.lists("orders")["orders"])


@pytest.mark.long("a process of its own is killed, and the next run waits whether it lives")
def test_a_cluster_is_evened_out_step_by_step_though_a_run_is_killed(
    operator: Operator, tmp_path: Path
) -> None:
    """First as much as a limit of bytes permits, then the rest; nothing is lost."""
    mover = Mover(operator, tmp_path)
    operator.make("orders", UNEVEN)
    mover.fill("orders", partitions=6, values=VALUES)
    before = mover.checksums("orders", 6)
    asked = ("rebalance", "--cluster", "c1", "--throttle", "100MB/s")
    with operator.job() as job:
        with job.answering():
            names = ("--topics", operator.name("orders"))
            assert operator("adopt", "--cluster", "c1", *names).exit_code == 0

            shown = operator(*asked, "--dry-run")
            assert (shown.exit_code, shown.stderr) == (0, ""), shown.output
            moves, time, *table = shown.stdout.splitlines()
            assert moves.startswith("moves    3 partitions of 1 topic: 3 replicas to copy, ")
            assert time.startswith("time     "), time
            (new,) = [line.split() for line in table if line.split()[:1] == ["3"]]
            assert int(new[3]) == int(new[1]) + 3, shown.stdout
            assert on_three(operator) == 0

            tight = operator(*asked, "--max-bytes", "1kB")
            assert (tight.exit_code, tight.stderr) == (
                1,
                "rebalance: --max-bytes permits none of the moves that are left; give more\n",
            ), tight.output
            assert tight.stdout.startswith("mapped   3 replicas move, "), tight.stdout

            limited = operator(*asked, "--max-bytes", ONE)
            assert (limited.exit_code, limited.stderr) == (MORE_TO_DO, ""), limited.output
            mapped, moves, *_, more = limited.stdout.splitlines()
            assert mapped.startswith("mapped   0 replicas move, "), limited.stdout
            assert moves.startswith("moves "), limited.stdout
            assert more.startswith("more     2 mapped partitions not moved yet; run again"), more
            assert on_three(operator) == 1

            with Seat(operator.settings().connection()) as other:
                other.sit()
                refused = operator(*asked)
            assert (refused.exit_code, refused.stdout) == (1, "")  # The maps are as they were.
            assert "another process moves partitions" in refused.stderr

            killed = subprocess.run(
                [*COMMAND, *asked],
                env={**os.environ, **operator.environ, **dying_at(f"{Failpoint.WAVE_RECORDED}:1")},
                capture_output=True,
                timeout=SECONDS_MAX,
                check=False,
                start_new_session=True,  # it kills its process group
            )
            assert killed.returncode == -9, killed.stdout + killed.stderr
            resumed = operator(*asked, "--max-bytes", ONE)
            assert resumed.exit_code == MORE_TO_DO, resumed.output
            assert "apply: resumes a wave of" in resumed.stderr
            assert resumed.stdout.startswith("mapped   0 replicas move, 0 lists get another leader")
            assert resumed.stdout.splitlines()[-1] == (
                "more     1 mapped partition not moved yet; run again for the rest"
            )
            assert on_three(operator) == 2
            rest = operator(*asked, "--max-bytes", ONE)
            assert (rest.exit_code, rest.stderr) == (0, ""), rest.output
            assert rest.stdout.splitlines()[-1] == "even     Kafka shows every list as it is mapped"
            assert on_three(operator) == 3
            again = operator(*asked)
            assert (again.exit_code, again.stderr) == (0, ""), again.output
            assert "moves " not in again.stdout
        late = operator(*asked, "--wait", "0.1")
        assert (late.exit_code, late.stdout) == (1, "")
        assert "the job did not answer within 0.1 s; is the job running" in late.stderr
    assert operator.plan().exit_code == 0
    assert mover.throttles("orders") == {}
    assert mover.leaders("orders") == [row[0] for row in operator.lists("orders")["orders"]]
    assert mover.checksums("orders", 6) == before


def test_the_job_is_sent_what_the_options_say(operator: Operator) -> None:
    """Else it would plan with a band of its own; what a limit leaves, the next run does."""
    orders = operator.name("orders")
    operator.make("orders", UNEVEN)
    events, size = operator.events, 400_000
    with operator.job() as job:
        has = {"disk_bytes": 100 * size}
        job.apply(
            [events.join(n, rack=r, resources=has) for n, r in operator.cluster.racks.items()]
        )
        demand = {"disk_bytes": size}
        job.apply([events.adopt(orders, *UNEVEN, demand=demand)])
        limits = ("--max-moves", 3, "--band-percent", "0", "--foreign", "*")
        with job.answering():
            done = operator("rebalance", "--cluster", "c1", *limits)
            rest = operator("rebalance", "--cluster", "c1", *limits)
        assert done.exit_code == MORE_TO_DO, done.output
        assert done.stdout.startswith(f"mapped   3 replicas of {3 * size} bytes move, ")
        assert done.stdout.splitlines()[-1] == (
            "more     1 move not asked for yet; run again for the rest"
        )
        assert (rest.exit_code, on_three(operator)) == (0, 4), rest.output
        messages = committed(operator.cluster.bootstrap_servers, operator.name("topic-events"))
        sent = [decode_event(message.value() or b"", kind="topic") for message in messages]
        event = next(each for each in sent if isinstance(each, ClusterRebalance))
        assert (event.max_moves, event.max_bytes, event.band_percent) == (3, None, 0)
