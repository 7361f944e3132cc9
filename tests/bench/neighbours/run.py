"""The product and its neighbours on the same work, side by side in one run.

    python tests/bench/neighbours/run.py [--only a,b] [--backlog 100000] [--backlogs 2]
        [--rounds 2] [--latencies 100] [--write]

Rounds: in each, every contestant is started again on topics of its own, one after the other, on one
embedded broker; every second round goes backwards. Each answers the same events and every answer is
checked against the core. `measuring.py` describes what is measured, and how; ratios are those to
`spu-assigner fluvio` of the same round. With --write the figures go to results/neighbours.json.

What the work leaves out is to the neighbours' favour: they know joins and creates alone, no racks,
capacities, leaves or repeated events, and write a map and what restores their state. The job also
writes each request's status, reasons in its maps, and markers by which all of it can be audited.

Exit status: 1 if one failed or answered wrongly, else 3 if one could not be run here, else 0.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from confluent_kafka import KafkaException
from contestants import CONTESTANTS, REFERENCE, Contestant, Place
from measuring import CPU_UNIT, EndedError, Measured, Sizes, measure
from rich.console import Console
from rich.table import Table
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker
from support.bench.figures import keep, percentiles, say, spread
from support.bench.preparing import CannotRunError
from support.bench.workload import SIZES
from support.job.same_answers import WrongAnswerError

FAILED: Final = 1
NOT_RUN: Final = 3


@dataclass(slots=True)
class Row:
    """A contestant, and what its runs gave."""

    contestant: Contestant
    runs: list[Measured] = field(default_factory=list)
    failure: str | None = None
    not_run: str | None = None

    @property
    def is_out(self) -> bool:
        return self.failure is not None or self.not_run is not None


def chosen(names: str | None) -> list[Contestant]:
    """Those named, in the table's order."""
    if names is None:
        return list(CONTESTANTS)
    wanted = {name.strip() for name in names.split(",")}
    unknown = wanted - {each.name for each in CONTESTANTS}
    if unknown:
        known = ", ".join(each.name for each in CONTESTANTS)
        sys.exit(f"no contestant {', '.join(sorted(unknown))}; there are: {known}")
    return [each for each in CONTESTANTS if each.name in wanted]


def run(rows: Sequence[Row], sizes: Sizes, rounds: int, folder: Path) -> None:
    """All rounds; a contestant that fails takes no further part."""
    with EmbeddedBroker(folder / "broker") as broker:
        for number in range(rounds):
            for row in rows if number % 2 == 0 else reversed(rows):
                if row.is_out:
                    continue
                name = row.contestant.name.replace(" ", "-")
                place = Place(
                    bootstrap=broker.bootstrap_servers,
                    prefix=f"r{number}-{name}.",
                    folder=folder / f"{number}-{name}",
                )
                try:
                    measured = measure(row.contestant, place, sizes)
                except (AssertionError, EndedError, KafkaException, WrongAnswerError) as reason:
                    row.failure = " ".join(str(reason).split())
                    say(f"round {number + 1}, {row.contestant.name}: FAILED: {row.failure}")
                    continue
                row.runs.append(measured)
                say(
                    f"round {number + 1}, {row.contestant.name}: "
                    f"{median(measured.events_per_s):,.0f} events/s, "
                    f"p50 {median(measured.latencies_ms):.1f} ms, "
                    f"CPU {median(measured.cpu_s):.1f} s"
                )
                shutil.rmtree(place.folder, ignore_errors=True)


def figures_of(row: Row, reference: Row | None) -> dict[str, Any]:
    """What is kept of a contestant."""
    about = {"guarantee": row.contestant.guarantee, "made_of": row.contestant.made_of()}
    if row.not_run is not None:
        return {"could_not_be_run": row.not_run, **about}
    if row.failure is not None:
        return {"failed": row.failure, **about}
    figures: dict[str, Any] = {
        **about,
        "answers": row.contestant.answers.name.lower(),
        "latency_ms": percentiles([ms for each in row.runs for ms in each.latencies_ms]),
        "events_per_s": spread([rate for each in row.runs for rate in each.events_per_s]),
        "cpu_s_per_100k": spread([cpu_s for each in row.runs for cpu_s in each.cpu_s]),
    }
    if reference is not None and not reference.is_out:
        pairs = list(zip(row.runs, reference.runs, strict=True))
        figures["of_the_product"] = {
            "latency_p50": _ratios([(o.latencies_ms, i.latencies_ms) for o, i in pairs]),
            "events_per_s": _ratios([(o.events_per_s, i.events_per_s) for o, i in pairs]),
            "cpu_s_per_100k": _ratios([(o.cpu_s, i.cpu_s) for o, i in pairs]),
        }
    return figures


def _ratios(rounds: Sequence[tuple[Sequence[float], Sequence[float]]]) -> dict[str, float]:
    """A contestant's values over the product's, by their medians in each round."""
    return spread([median(own) / median(its) for own, its in rounds])


def show(figures: dict[str, dict[str, Any]]) -> None:
    """One table; × is the ratio to the product."""
    table = Table(title=f"the same work; × is to {REFERENCE}, medians of rounds")
    for column in ("contestant", "guarantee"):
        table.add_column(column)
    for column in (
        *("p50 ms", "p95", "p99", "× p50", "events/s", "× rate"),
        *(f"CPU s per {CPU_UNIT // 1000}k", "× CPU"),
    ):
        table.add_column(column, justify="right")
    reasons = []
    for name, figure in figures.items():
        if "latency_ms" not in figure:
            why = figure.get("failed") or figure["could_not_be_run"]
            reasons.append(f"{name}: {why}")
            table.add_row(name, "FAILED" if "failed" in figure else "could not be run")
            continue
        latency, ratios = figure["latency_ms"], figure.get("of_the_product")

        def ratio(of: str, ratios: dict[str, Any] | None = ratios) -> str:
            return f"{ratios[of]['median']:.3g}" if ratios else "–"

        table.add_row(
            *(name, figure["guarantee"]),
            *(f"{latency[rank]:.1f}" for rank in ("p50", "p95", "p99")),
            ratio("latency_p50"),
            f"{figure['events_per_s']['median']:,.0f}",
            ratio("events_per_s"),
            f"{figure['cpu_s_per_100k']['median']:.1f}",
            ratio("cpu_s_per_100k"),
        )
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    for reason in reasons:
        say(reason)


def main() -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", help="names, with commas between")
    parser.add_argument("--backlog", type=int, default=100_000)
    parser.add_argument("--backlogs", type=int, default=2, help="in each round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--latencies", type=int, default=100, help="likewise")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows = [Row(each) for each in chosen(options.only)]
    for row in rows:
        try:
            row.contestant.prepare()
        except (CannotRunError, AssignerError) as reason:
            row.not_run = " ".join(str(reason).split())
            say(f"{row.contestant.name} cannot be run: {row.not_run}")
    sizes = Sizes(backlog=options.backlog, backlogs=options.backlogs, latencies=options.latencies)
    with tempfile.TemporaryDirectory(prefix="spu-assigner-neighbours-") as folder:
        run(rows, sizes, options.rounds, Path(folder))
    reference = next((row for row in rows if row.contestant.name == REFERENCE), None)
    figures = {row.contestant.name: figures_of(row, reference) for row in rows}
    show(figures)
    if options.write:
        keep(
            "neighbours",
            sizes={
                **SIZES,
                "backlog": sizes.backlog,
                "backlogs_in_a_round": sizes.backlogs,
                "rounds": options.rounds,
                "warm_up_backlog": sizes.warm_up,
            },
            figures=figures,
            show=False,
        )
    if any(row.failure for row in rows):
        return FAILED
    return NOT_RUN if any(row.not_run for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
