"""The file of `follow --labels`: what it may hold, and what is said of one that may not."""

from __future__ import annotations

from pathlib import Path

import pytest
from spu_assigner.core.base.constraints import TaintEffect
from spu_assigner.stream.clusters.follow.labels_file import read_labels

GOOD = """\
4:
  labels: {tier: ssd, zone: "8"}
  taints: [{key: pool, value: pay, effect: no_leaders}]
0: {labels: {tier: hdd}}
7: {}
"""
JSON = '{"4": {"labels": {"tier": "ssd"}}}'


def test_a_file_gives_labels_and_taints_by_broker(tmp_path: Path) -> None:
    """As YAML or as JSON."""
    file = tmp_path / "labels.yaml"
    file.write_text(GOOD, "utf-8")
    of_four = {"tier": "ssd", "zone": "8", ("pool", TaintEffect.NO_LEADERS): "pay"}
    assert read_labels(file) == ({4: of_four, 0: {"tier": "hdd"}, 7: {}}, [])
    file.write_text(JSON, "utf-8")
    assert read_labels(file) == ({4: {"tier": "ssd"}}, [])
    file.write_text("{}", "utf-8")
    assert read_labels(file) == ({}, [])


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", " is null; expected an object for each broker id, such as 4: {labels"),
        ("- 4", " is a list; expected an object for each broker id"),
        ("4: [", " is no YAML: "),
        ("4: {}\n4: {}", "'4' stands twice"),
        ("four: {}", ' has "four"; expected an object for each broker id'),
        ("04: {}", ' has "04"; expected'),
        ("4: ssd", ' 4 is "ssd"; expected an object that may have labels, taints'),
        ("4: {tier: ssd}", ' 4 has an unknown field "tier"; it may have labels, taints'),
        ("4: {labels: {tier: 1}}", " 4.labels.tier is 1; expected a text"),
        ("4: {labels: {kafka-cluster: k}}", " 4: only follow sets kafka-cluster"),
        ("4: {taints: [{key: a, value: b, effect: NoExecute}]}", '.effect is "NoExecute"; expe'),
        ("4: {taints: [{key: '', value: b, effect: evict}]}", " 4: taints[0].key has 0 charac"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, fault: str) -> None:
    """Nothing of such a file is announced."""
    file = tmp_path / "labels.yaml"
    file.write_text(text, "utf-8")
    (found,) = read_labels(file)[1]
    assert found.startswith(str(file))
    assert fault in found


def test_a_file_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    """It says why."""
    assert "is not a regular file; expected an object for" in read_labels(tmp_path)[1][0]
