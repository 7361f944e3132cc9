"""The table of what a job costs: what misses its target is bold, what was not measured is empty."""

from __future__ import annotations

from support.bench.cost_table import HEAD, LINES, table


def test_a_missed_target_is_bold_and_a_moonshot_has_a_star() -> None:
    """Nobody should have to compare the columns."""
    this = {"idle": {"job_cores": 0.051, "broker_cores": 0.02}, "memory_mib": 650}
    alone, earlier = {"memory_mib": 600}, {"idle": {"job_cores": 0.16}}
    lines = table({"this": this, "spark_alone": alone, "earlier": earlier}).splitlines()
    assert lines[0].split(" | ")[1] == HEAD[1]
    assert "| idle: the job | **0.051** |  | 0.16 | 0.32 | cores | ≤ 0.05 | ≤ 0.02 |" in lines
    assert "| idle: the broker that it polls | 0.02 ★ |  |  |  | cores | ≤ 0.05 | ≤ 0.02 |" in lines
    assert (
        "| memory of all processes of an idle job | 650 | 600 |  |  | MiB | ≤ 900 | ≤ 600 |"
        in lines
    )
    assert len(lines) == 2 + len(LINES)
