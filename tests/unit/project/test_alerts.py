"""The alert rules: complete, loaded by Prometheus, and firing when they should.

Whether rules fire is tried with Prometheus's own `promtool` where it is on the PATH.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml
from support.project.promql import alert_rules

_ROOT = Path(__file__).parents[3]
_FOLDER = _ROOT / "docker" / "prometheus"
_FILE = _FOLDER / "alerts.yml"
_CASES = _ROOT / "tests" / "data" / "alerts_test.yml"


def loaded(path: Path = _FILE) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def test_the_rules_are_whole() -> None:
    """What they name is there: a broker test holds it to what a job shows."""
    assert [rule["alert"] for rule in alert_rules(loaded())] == [
        "SpuAssignerNotReady",
        "SpuAssignerLag",
        "SpuAssignerMarkerOld",
        "SpuAssignerDeadLetters",
        "SpuAssignerWaiting",
        "SpuAssignerMovesSilent",
        "SpuAssignerRuleBroken",
        "SpuAssignerSpuOffline",
        "SpuAssignerFollowGone",
        "SpuAssignerMapsAhead",
    ]
    for rule in alert_rules(loaded()):
        assert rule.keys() == {"alert", "annotations", "expr", "for", "labels"}
        assert rule["annotations"].keys() == {"summary", "description"}
        assert rule["labels"]["severity"] in {"critical", "warning"}


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
