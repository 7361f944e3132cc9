"""`make bench`: no part takes another with it, and the table says what the results say."""

from __future__ import annotations

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
from support.bench.curves import CAPTIONS, draw
from support.bench.figures import read_results
from support.bench.targets import Target, targets

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


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sequence[Any]:
    """Programs that write their results and end with a status."""
    monkeypatch.setattr(run, "HERE", tmp_path)
    lines = (
        "import os, pathlib, sys",
        "_, write, name, status, *_ = sys.argv",
        "pathlib.Path(os.environ['BENCH_RESULTS'], f'{name}.json').write_text('{}')",
        "os.kill(os.getpid(), 9) if status == '-9' else sys.exit(int(status))",
    )
    (tmp_path / "part.py").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "stored").mkdir()
    return [
        run.Part(name, name, 1, ["part.py", name, status])
        for name, status in (("a", "3"), ("b", "-9"), ("c", "0"), ("d", "1"))
    ]


def test_a_part_that_fails_takes_nothing_from_the_others(
    tmp_path: Path, parts: Sequence[Any]
) -> None:
    """Half an hour of measuring is not thrown away, and the status shows it."""
    stored = tmp_path / "stored"
    statuses = run.run_parts(parts, tmp_path / "run", quick=False, stored=stored)
    assert statuses == {"a": 3, "b": -9, "c": 0, "d": 1}
    assert sorted(path.name for path in stored.iterdir()) == ["a.json", "c.json"]
    assert [run.status_of(each) for each in ([3, -9, 0], [0, 3], [0, 0])] == [1, 3, 0]


def test_a_quick_run_is_not_put_over_what_is_stored(tmp_path: Path, parts: Sequence[Any]) -> None:
    """Small sizes give other figures."""
    run.run_parts(parts[:1], tmp_path / "run", quick=True, stored=tmp_path / "stored")
    assert not any((tmp_path / "stored").iterdir())
    assert (tmp_path / "run" / "a.json").is_file()


def test_each_part_is_a_program_that_is_there_and_has_its_results_stored() -> None:
    """A renamed program would be reported only after the parts before it."""
    for each in run.PARTS:
        assert (_BENCH / each.program[0]).is_file()
        assert each.result in read_results()


def test_targets_and_the_quick_run_name_neighbours_that_there_are() -> None:
    """A name that is misspelt would only be "not measured"."""
    there = {each.name for each in program("neighbours/contestants").CONTESTANTS}
    assert set(run.QUICK_NEIGHBOURS) < there
    assert {each.beside for each in targets({})} - {""} < there


@pytest.mark.parametrize(
    ("figures", "at_most", "expected"),
    [
        ({"a": {"x": 2}}, False, "2"),
        ({"a": {"x": 1.99}}, False, "**1.99**"),
        ({"a": {"x": 9}}, False, "9 ★"),
        ({"a": {"x": 2}}, True, "2 ★"),
        ({"a": {"x": 2.01}}, True, "**2.01** ★"),
        ({}, True, "not measured"),
    ],
)
def test_a_cell_is_met_missed_or_not_measured(
    figures: dict[str, Any], at_most: bool, expected: str
) -> None:
    """The bound itself is met."""
    target = Target(
        what="w", policy="p", ours=("f", "a", "x"), at_most=at_most, reach=2.0, moonshot=8.0
    )
    assert target.cell(target.value({"f": {"figures": figures}})) == expected


def test_a_ratio_is_none_where_the_neighbour_was_not_measured() -> None:
    """Nor where it is 0."""
    target = Target(what="w", policy="p", ours=("f", "a", "x"), beside="b")
    for other, expected in (({"b": {"x": 3}}, 2.0), ({"b": {"x": 0}}, None), ({}, None)):
        assert target.value({"f": {"figures": {"a": {"x": 6}, **other}}}) == expected


@pytest.mark.thorough
def test_the_curves_are_drawn_from_the_results(tmp_path: Path) -> None:
    """The same results give the same file."""
    results = read_results()
    files = draw(results, tmp_path)
    assert [file.stem for file in files] == list(CAPTIONS)
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
