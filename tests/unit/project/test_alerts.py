"""The alert rules: complete, of what a job shows, and firing when they should.

Whether rules fire is tried with Prometheus's own `promtool` where it is on the PATH. The rest is
held by the reader of queries that the dashboard's test uses, on every machine.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.project.promql import SEVERITIES, alert_faults, alert_rules, samples_of

_ROOT = Path(__file__).parents[3]
_FOLDER = _ROOT / "docker" / "prometheus"
_FILE = _FOLDER / "alerts.yml"
_CASES = _ROOT / "tests" / "data" / "alerts_test.yml"
_SCRAPE = """\
# TYPE spu_assigner_ready gauge
spu_assigner_ready 1
# TYPE spu_assigner_dead_letters counter
spu_assigner_dead_letters_total{code="NOT_AVRO"} 3
# TYPE spu_assigner_cluster_waiting gauge
spu_assigner_cluster_waiting{cluster="c1"} 0
# TYPE spu_assigner_lag_messages gauge
spu_assigner_lag_messages{topic="t",partition="0"} 0
# TYPE spu_assigner_marker_age_seconds gauge
spu_assigner_marker_age_seconds 4
# TYPE spu_assigner_moves_running gauge
spu_assigner_moves_running 0
# TYPE spu_assigner_moves_record_age_seconds gauge
spu_assigner_moves_record_age_seconds 4
"""


def loaded(path: Path = _FILE) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def job_name() -> str:
    """What Prometheus's configuration calls the job whose port has the metrics."""
    [name] = [
        each["job_name"]
        for each in loaded(_FOLDER / "prometheus.yml")["scrape_configs"]
        if each["static_configs"][0]["targets"] == ["job:4060"]
    ]
    return str(name)


def test_the_rules_are_whole_and_of_what_a_job_shows() -> None:
    """A rule that names what is not there never fires, and nobody notices."""
    assert [rule["alert"] for rule in alert_rules(loaded())] == [
        "SpuAssignerNotReady",
        "SpuAssignerLag",
        "SpuAssignerMarkerOld",
        "SpuAssignerDeadLetters",
        "SpuAssignerWaiting",
        "SpuAssignerMovesSilent",
    ]
    assert alert_faults(loaded(), samples_of(_SCRAPE), job=job_name()) == []
    assert {rule["labels"]["severity"] for rule in alert_rules(loaded())} == set(SEVERITIES)


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("spu_assigner_ready ==", "spu_assigner_readiness ==", "no sample is selected by"),
        ('up{job=\\"spu-assigner\\"}', 'up{job=\\"assigner\\"}', "no sample is selected by up"),
        (
            "by (job, instance) (spu_assigner_lag_messages) >",
            "by (host) (spu_assigner_lag_messages) >",
            "label 'host'",
        ),
        ("sum by (job, instance) (spu", "sum by (job) (spu", "labels ['instance'] of its summary"),
        ("$labels.cluster", "$labels.kluster", "labels ['kluster'] of its summary"),
        ('"for": "3m"', '"for": "soon"', "for is 'soon'"),
        ('"for": "3m", ', "", "expected ['alert', 'annotations', 'expr', 'for', 'labels']"),
        ('"severity": "critical"', '"level": "critical"', "expected a severity"),
        ('"summary"', '"title"', "has no summary"),
        ("offset 15m", "offset15 m", "is no PromQL"),
    ],
)
def test_a_fault_of_a_rule_is_found(right: str, wrong: str, message: str) -> None:
    """A check that passes everything is none."""
    whole = json.dumps(loaded())
    assert right in whole
    found = alert_faults(
        json.loads(whole.replace(right, wrong)), samples_of(_SCRAPE), job="spu-assigner"
    )
    assert any(message in fault for fault in found), found


def test_prometheus_loads_the_rules_where_compose_mounts_them() -> None:
    """A file that nobody reads alerts nobody."""
    [name] = loaded(_FOLDER / "prometheus.yml")["rule_files"]
    services = loaded(_ROOT / "docker" / "compose.yaml")["services"]
    mounts = dict(each.split(":")[:2] for each in services["prometheus"]["volumes"])
    assert mounts["./prometheus/prometheus.yml"] == "/etc/prometheus/prometheus.yml"
    assert mounts[f"./prometheus/{name}"] == f"/etc/prometheus/{name}"
    assert (_FOLDER / name) == _FILE


def test_each_rule_has_a_case_that_fires_and_one_that_does_not() -> None:
    """The cases are in Prometheus's own format; its tool runs them where it is there."""
    cases = loaded(_CASES)
    named = [
        (case["alertname"], bool(case.get("exp_alerts")))
        for each in cases["tests"]
        for case in each["alert_rule_test"]
    ]
    names = {rule["alert"] for rule in alert_rules(loaded())}
    assert set(named) == {(name, fires) for name in names for fires in (True, False)}
    assert [(_CASES.parent / each).resolve() for each in cases["rule_files"]] == [_FILE]
    if (promtool := shutil.which("promtool")) is None:
        return  # What can be held without it was held above.
    for command in (["check", "rules", str(_FILE)], ["test", "rules", str(_CASES)]):
        done = subprocess.run([promtool, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
