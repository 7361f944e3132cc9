"""`make bench`: no part takes another with it, and the table says what the results say."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from spu_assigner.core import Assigner, SpuJoined, TopicCreate
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.schemas.messages.codec import encode_record
from support.bench.curves import draw, drawable
from support.bench.figures import STORED
from support.bench.tables.bench_table import count, kept, lines_missed, show
from support.bench.targets import Target, Verdict, read_results, targets

_BENCH = Path(__file__).parents[3] / "bench"


def program(name: str) -> ModuleType:
    """A program of tests/bench as a module."""
    path = _BENCH / f"{name}.py"
    spec = util.spec_from_file_location(f"bench_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Its dataclasses look themselves up.
    spec.loader.exec_module(module)
    return module


run = program("run")
messages = program("neighbours/messages")
core_growth = program("core_growth")


def part(name: str, status: int = 0, *, writes: bool = True) -> Any:
    """A program that says something, writes its result and ends with this status."""
    lines = ["import os, sys, pathlib", f"print('here is {name}')"]
    if writes:
        file = f"pathlib.Path(os.environ['BENCH_RESULTS'], '{name}.json')"
        lines.append(f'{file}.write_text(\'{{"figures": {{"{name}": 1}}}}\')')
    code = "; ".join([*lines, f"sys.exit({status})"])
    return run.Part(name=name, results=(name,), minutes=1, whole=["-c", code])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.json"))


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    folder = tmp_path / "stored"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("statuses", "whole"), [((0, 0), 0), ((1, 0), 1), ((3, 0), 3), ((3, -9), 1)]
)
def test_a_part_that_fails_takes_nothing_from_the_others(
    tmp_path: Path,
    stored: Path,
    capsys: pytest.CaptureFixture[str],
    statuses: Sequence[int],
    whole: int,
) -> None:
    """Half an hour of measuring is not thrown away, and the status shows it."""
    parts = [part(name, status) for name, status in zip("ab", statuses, strict=True)]
    if -9 in statuses:
        parts[1] = run.Part(
            name="b", results=("b",), minutes=1, whole=["-c", "import os; os.kill(os.getpid(), 9)"]
        )
    outcomes = run.run_parts(parts, tmp_path / "run", quick=False, stored=stored)
    assert [outcome.status for outcome in outcomes] == list(statuses)
    assert run.status_of(outcomes) == whole
    good = [f"{n}.json" for n, status in zip("ab", statuses, strict=True) if status in {0, 3}]
    assert names(stored) == good
    assert "here is a" in capsys.readouterr().out
    assert (tmp_path / "run" / "a.log").read_text() == "here is a\n"


def test_a_quick_run_is_not_put_over_what_is_stored(tmp_path: Path, stored: Path) -> None:
    """Small sizes give other figures."""
    outcomes = run.run_parts([part("a")], tmp_path / "run", quick=True, stored=stored)
    assert run.status_of(outcomes) == 0
    assert names(stored) == []
    assert names(tmp_path / "run") == ["a.json"]


def test_each_part_is_a_program_that_is_there_and_has_its_results_stored() -> None:
    """A renamed program would be reported only after the parts before it."""
    for each in run.PARTS:
        for quick in (False, True):
            (file,) = [word for word in each.command(quick=quick) if word.endswith(".py")]
            assert Path(file).is_file()


def test_targets_and_the_quick_run_name_neighbours_that_there_are() -> None:
    """A name that is misspelt would only be "not measured"."""
    there = {each.name for each in program("neighbours/contestants").CONTESTANTS}
    assert set(run.QUICK_NEIGHBOURS) < there
    held_to = [place for each in targets({}) for place in (each.ours, *each.beside)]
    assert {place[1] for place in held_to if place[0] == "neighbours"} < there


def held(value: float | None, *, at_most: bool = False) -> Verdict:
    target = Target(what="w", policy="p", ours=("f", "a"), at_most=at_most, reach=2.0)
    return target.verdict(value, target.reach)


def test_a_line_is_met_missed_or_not_measured() -> None:
    """The bound itself is met; what was not measured is neither."""
    assert [held(value) for value in (2.0, 1.99, None)] == [
        Verdict.MET,
        Verdict.MISSED,
        Verdict.NOT_MEASURED,
    ]
    assert [held(value, at_most=True) for value in (2.0, 2.01)] == [Verdict.MET, Verdict.MISSED]


def test_a_ratio_is_to_the_best_of_the_neighbours() -> None:
    """And is none where one of them was not measured."""
    target = Target(what="w", policy="p", ours=("f", "a"), beside=[("f", "b"), ("f", "c")])
    figures = {"a": 6, "b": 2, "c": 3}
    assert target.value({"f": {"figures": figures}}) == 2.0
    assert target.value({"f": {"figures": {**figures, "c": 0}}}) == 3.0
    assert target.value({"f": {"figures": {"a": 6, "b": 2}}}) is None
    assert target.value({}) is None


def test_the_table_has_every_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Also of what was not measured: a line that is left out would look as if it were met."""
    stored = read_results(STORED)
    for results in ({}, stored):
        show(results, "title")
        shown = capsys.readouterr().out
        assert shown.count("│") // 9 >= len(targets(results))
        counted = count(results)["reach"]
        assert sum(counted.values()) == sum(each.reach is not None for each in targets(results))
        assert len(lines_missed(results)) == counted[Verdict.MISSED]
        assert len(kept(results)) == len(targets(results))
        assert json.loads(json.dumps(kept(results)))
    assert count({})["reach"][Verdict.MET] == 0


@pytest.mark.thorough
def test_the_curves_are_drawn_from_the_results(tmp_path: Path) -> None:
    """Each picture whose results are there; the same results give the same file."""
    results = read_results(STORED)
    files = draw(results, tmp_path)
    assert [file.stem for file in files] == list(drawable(results))
    assert files
    before = [file.read_bytes() for file in files]
    assert all(content.startswith(b"\x89PNG") for content in before)
    assert [file.read_bytes() for file in draw(results, tmp_path)] == before


def test_neighbours_write_the_map_of_a_create_as_the_product_does() -> None:
    """Else each of their answers is taken for a wrong one."""
    assigner = Assigner()
    assigner.apply(SpuJoined(event_id="e1", cluster_id="c1", spu_id=0))
    created, _ = assigner.apply(TopicCreate(event_id="e2", cluster_id="c1", topic="t"))
    assert isinstance(created, ReplicaMap)
    assert created.replicas is not None
    expected = encode_record(replace(created, reason=None, own_events=()))
    fields = {
        "cluster_id": "c1",
        "topic": "t",
        "revision": 1,
        "policy": created.policy.name,
        "replicas": created.replicas.tolist(),
        "chain_index": created.chain_index,
        "cause": "e2",
        "replication_factor": 1,
        "ignore_rack": False,
        "own_events": [],
        "pinned": False,
    }
    assert messages.encode_map(fields) == expected
