"""The runbooks against the code: which Kafka was tested, and what is restarted."""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path

from spu_assigner.stream.cli import _COMMANDS
from spu_assigner.stream.kafka.config.setting_spec import SettingsError
from spu_assigner.stream.local.jvm.jars import read_lock
from support.project.jars_lock import KAFKAS, broker_locks

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/runbooks.md").read_text(encoding="utf-8")
BROKER = "org.apache.kafka:kafka_2.13:"


def test_each_kafka_that_is_documented_is_one_that_tests_start() -> None:
    """That of all other tests first; the lock of each other has a broker of that version."""
    [embedded] = [
        jar.coordinate.removeprefix(BROKER)
        for jar in read_lock()["broker"]
        if jar.coordinate.startswith(BROKER)
    ]
    _, _, section = PAGE.partition("\n### Tested versions\n")
    shown = re.findall(r"^\| (\d[\d.]*) \|", section, re.MULTILINE)
    assert shown == [embedded, *KAFKAS]
    locks = broker_locks()
    assert tuple(locks) == KAFKAS
    for version, jars in locks.items():
        assert f"{BROKER}{version}" in {jar.coordinate for jar in jars}
    assert f"`KAFKA_IMAGE=apache/kafka:{embedded}`" in (ROOT / "docs/operations.md").read_text()


def test_the_unit_restarts_what_a_restart_can_help() -> None:
    """Not what is wrong in its settings, nor what was asked to end."""
    [text] = re.findall(r"<!-- unit -->\n```ini\n(.*?)```\n<!-- /unit -->", PAGE, re.DOTALL)
    unit = ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # names of systemd are as written
    unit.read_string(text)
    service = unit["Service"]
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"] == str(SettingsError.exit_status)
    assert service["SuccessExitStatus"].split() == ["130", "143"]
    assert service["ExecStart"].split() == ["/opt/spu-assigner/bin/spu-assigner", "%i", "$OPTIONS"]
    [names] = re.findall(r"for each of `(\w+)`, `(\w+)` and `(\w+)`", PAGE)
    assert set(names) < set(_COMMANDS)
