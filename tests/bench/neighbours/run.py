"""The product and its neighbours on the same work, side by side in one run.

    python tests/bench/neighbours/run.py [--only a,b] [--backlog 100000] [--latencies 100] [--write]

Every contestant is started on topics of its own, one after the other, on one embedded broker, and
once more in the opposite order: a machine that becomes faster or slower meanwhile does so for all.
Each answers the same events and every answer is checked against the core. `measuring.py` describes
what is measured, and how. With --write the figures go to results/neighbours.json.

Exit status: 1 if one failed or answered wrongly, else 3 if one could not be run here, else 0.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from confluent_kafka import KafkaException
from contestants import CONTESTANTS, Contestant, Place
from measuring import EndedError, Measured, Sizes, measure
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


def run(
    contestant: Contestant, broker: EmbeddedBroker, sizes: Sizes, folder: Path
) -> Measured | dict[str, str]:
    """What one run gave, or why it gave nothing."""
    place = Place(bootstrap=broker.bootstrap_servers, prefix=f"{folder.name}.", folder=folder)
    try:
        contestant.prepare()
        return measure(contestant, place, sizes)
    except (CannotRunError, AssignerError) as reason:
        return {"could_not_be_run": " ".join(str(reason).split())}
    except (AssertionError, EndedError, KafkaException, WrongAnswerError) as reason:
        return {"failed": " ".join(str(reason).split())}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def figures_of(contestant: Contestant, runs: Sequence[Measured | dict[str, str]]) -> dict[str, Any]:
    """What is kept of a contestant."""
    about = {"guarantee": contestant.guarantee}
    done = [each for each in runs if isinstance(each, Measured)]
    for each in runs:
        if isinstance(each, dict):
            return about | each
    return {
        **about,
        "made_of": contestant.made_of(),
        "answers": contestant.answers.name.lower(),
        "latency_ms": percentiles([ms for each in done for ms in each.latencies_ms]),
        "events_per_s": spread([rate for each in done for rate in each.events_per_s]),
        "cpu_s_per_100k": spread([cpu_s for each in done for cpu_s in each.cpu_s]),
    }


def main() -> int:
    """The command; its exit status."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", help="names, with commas between")
    parser.add_argument("--backlog", type=int, default=100_000)
    parser.add_argument("--latencies", type=int, default=100)
    options = parser.parse_args()
    sizes = Sizes(backlog=options.backlog, latencies=options.latencies)
    asked = chosen(options.only)
    runs: dict[str, list[Measured | dict[str, str]]] = {each.name: [] for each in asked}
    with (
        tempfile.TemporaryDirectory(prefix="spu-assigner-neighbours-") as folder,
        EmbeddedBroker(Path(folder) / "broker") as broker,
    ):
        for number, each in enumerate([*asked, *reversed(asked)]):
            place = Path(folder) / f"{each.name.replace(' ', '-')}-{number}"
            runs[each.name].append(run(each, broker, sizes, place))
            say(f"{each.name}: {figures_of(each, runs[each.name])}")
    figures = {each.name: figures_of(each, runs[each.name]) for each in asked}
    say(neighbours(figures))
    if options.write:
        used = {"backlog": sizes.backlog, "backlogs": sizes.backlogs, "warm_up": sizes.warm_up}
        keep("neighbours", sizes={**SIZES, **used}, figures=figures, show=False)
    if any("failed" in each for each in figures.values()):
        return FAILED
    return NOT_RUN if any("could_not_be_run" in each for each in figures.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
