"""The product and its neighbours on the same work, side by side in one run.

    python tests/bench/neighbours/run.py [--only a,b] [--backlog 100000] [--backlogs 3]
        [--latencies 200] [--write]

Every contestant is started on topics of its own, one after the other, on one embedded broker. Each
answers the same events and every answer is checked against the core. `measuring.py` describes what
is measured, and how. With --write the figures go to results/neighbours.json.

What the work leaves out is to the neighbours' favour: they know joins and creates alone, no racks,
capacities, leaves or repeated events, and write a map and what restores their state. The job also
writes each request's status, reasons in its maps, and markers by which all of it can be audited.

Exit status: 1 if one failed or answered wrongly, else 3 if one could not be run here, else 0.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from confluent_kafka import KafkaException
from contestants import CONTESTANTS, Contestant, Place
from measuring import EndedError, Sizes, measure
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker
from support.bench.bench_pages import neighbours
from support.bench.figures import keep, parser_of, percentiles, say, spread
from support.bench.preparing import CannotRunError
from support.bench.workload import SIZES
from support.job.same_answers import WrongAnswerError

FAILED: Final = 1
NOT_RUN: Final = 3


def chosen(names: str | None) -> list[Contestant]:
    """Those named, in the table's order."""
    known = {each.name: each for each in CONTESTANTS}
    wanted = known.keys() if names is None else set(names.split(","))
    if unknown := wanted - known.keys():
        sys.exit(f"no contestant {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    return [each for name, each in known.items() if name in wanted]


def figures_of(
    contestant: Contestant, broker: EmbeddedBroker, sizes: Sizes, folder: Path
) -> dict[str, Any]:
    """What is kept of a contestant."""
    name = contestant.name.replace(" ", "-")
    place = Place(bootstrap=broker.bootstrap_servers, prefix=f"{name}.", folder=folder / name)
    about = {"guarantee": contestant.guarantee}
    try:
        contestant.prepare()
        about["made_of"] = contestant.made_of()
        measured = measure(contestant, place, sizes)
    except (CannotRunError, AssignerError) as reason:
        return {"could_not_be_run": " ".join(str(reason).split()), **about}
    except (AssertionError, EndedError, KafkaException, WrongAnswerError) as reason:
        return {"failed": " ".join(str(reason).split()), **about}
    finally:
        shutil.rmtree(place.folder, ignore_errors=True)
    return {
        **about,
        "answers": contestant.answers.name.lower(),
        "latency_ms": percentiles(measured.latencies_ms),
        "events_per_s": spread(measured.events_per_s),
        "cpu_s_per_100k": spread(measured.cpu_s),
    }


def main() -> int:
    """The command; its exit status."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", help="names, with commas between")
    parser.add_argument("--backlog", type=int, default=100_000)
    parser.add_argument("--backlogs", type=int, default=3)
    parser.add_argument("--latencies", type=int, default=200)
    options = parser.parse_args()
    sizes = Sizes(backlog=options.backlog, backlogs=options.backlogs, latencies=options.latencies)
    figures = {}
    with (
        tempfile.TemporaryDirectory(prefix="spu-assigner-neighbours-") as folder,
        EmbeddedBroker(Path(folder) / "broker") as broker,
    ):
        for each in chosen(options.only):
            figures[each.name] = figures_of(each, broker, sizes, Path(folder))
            say(f"{each.name}: {figures[each.name]}")
    say(neighbours(figures))
    if options.write:
        asked = {"backlog": sizes.backlog, "backlogs": sizes.backlogs, "warm_up": sizes.warm_up}
        keep("neighbours", sizes={**SIZES, **asked}, figures=figures, show=False)
    if any("failed" in each for each in figures.values()):
        return FAILED
    return NOT_RUN if any("could_not_be_run" in each for each in figures.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
