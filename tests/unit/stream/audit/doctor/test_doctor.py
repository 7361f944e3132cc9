"""`spu-assigner doctor` without a broker: its checks, their codes, and the report."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kafka import TopicPartition
from kafka.protocol.api_key import ApiKey
from spu_assigner.schemas.messages.wire import MovedPartition, MovesState
from spu_assigner.stream.audit.doctor import machine_checks
from spu_assigner.stream.audit.doctor.broker_checks import _check_features
from spu_assigner.stream.audit.doctor.checks import (
    SLOWNESS_MAX,
    Check,
    CheckTarget,
    TimeLimit,
    Unchecked,
    run_all,
)
from spu_assigner.stream.audit.doctor.codes import describe, rules
from spu_assigner.stream.audit.doctor.command import _texts, doctor
from spu_assigner.stream.audit.doctor.target_checks import _ended_early, split_moves
from spu_assigner.stream.cli import cli
from spu_assigner.stream.clusters.moves.run_record import begun_run
from spu_assigner.stream.common.shared_options import SharedOptionsGroup
from spu_assigner.stream.kafka.acls import Role
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.local.jvm.java import EXPECTED

PACKAGE = Path(machine_checks.__file__).parent
DOCUMENT = Path(__file__).parents[5] / "docs/doctor.md"
LATER = 60.0

COMMANDS = SharedOptionsGroup(commands={"doctor": doctor})


def call(*arguments: str, **environ: str) -> Result:
    """In an environment of its own; its checks have all the time they want."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPU_")}
    with pytest.MonkeyPatch.context() as patch:
        ports = {"SPU_ASSIGNER_UI_PORT": "0", "SPU_ASSIGNER_METRICS_PORT": "off"}
        patch.setattr("os.environ", {**kept, **ports, **environ})
        return CliRunner().invoke(
            COMMANDS, ["doctor", "--timeout", str(LATER), *arguments], standalone_mode=False
        )


def checks_of(result: Result) -> dict[str, dict[str, Any]]:
    assert result.exception is None, result.output
    return {each["check"]: each for each in json.loads(result.stdout)["checks"]}


TARGET = CheckTarget(
    settings=Settings.load(environ={}), is_broker_named=False, role=Role.JOB, environ={}
)


def check(name: str, function: Callable[..., Any], *needs: Check, seconds: float = LATER) -> Check:
    limit = TimeLimit(seconds=seconds)
    return Check(name, function, target=TARGET, limit=limit, needs=needs)


def test_every_code_has_a_name_of_its_own_and_is_in_the_docs() -> None:
    """Scripts and docs/doctor.md name them."""
    assert len({rule.name for rule in rules().values()}) == len(rules()) > 50
    assert list(rules()) == sorted(rules())
    written = DOCUMENT.read_text(encoding="utf-8")
    table = written.partition("<!-- findings -->\n")[2].partition("\n<!-- /findings -->")[0]
    assert table == describe()
    assert EXPECTED in rules()["D101"].fix
    assert EXPECTED in rules()["D102"].fix


def test_every_code_is_reported_somewhere_and_every_reported_one_is_there() -> None:
    """The table and the checks are apart."""
    code = "".join(path.read_text("utf-8") for path in PACKAGE.glob("*.py"))
    assert {*re.findall(r'"(D\d{3})"', code)} == {*rules()}


def test_explain_explains_a_code_and_checks_nothing() -> None:
    """Also by name; one that is not there is wrong usage."""
    result = CliRunner().invoke(cli, ["doctor", "--explain", "d502"])
    assert result.exit_code == 0
    assert result.stdout.startswith("D502 marker-ahead: the checkpoint is older than")
    assert "what to do: restore the latest copy" in result.stdout
    assert result.stdout.endswith("a fault: the exit status is 1\n")
    assert CliRunner().invoke(cli, ["doctor", "--explain", "marker-ahead"]).stdout == result.stdout
    wrong = CliRunner().invoke(cli, ["doctor", "--explain", "D999"])
    assert wrong.exit_code == 2
    assert "'D999' is no code" in wrong.stderr


def test_a_check_that_breaks_or_waits_hides_no_other() -> None:
    """What needs it says so, with the reason; the others run."""

    def breaks(check: Check) -> None:
        raise ZeroDivisionError("no\nreason")

    def says(check: Check) -> None:
        raise Unchecked("there is nothing to check")

    broken, silent = check("broken", breaks), check("silent", says)
    reports = run_all(
        [
            broken,
            silent,
            check("one", lambda each, *, broken: None, broken),
            check("two", lambda each, *, silent: None, silent),
            check("three", lambda each: each.report("D101", "none")),
        ]
    )
    assert [each.unchecked for each in reports] == [
        "the check of broken ended with an unexpected error",
        "there is nothing to check",
        "the check of broken ended with an unexpected error",
        "there is nothing to check",
        None,
    ]
    codes = [[finding.rule.code for finding in each.findings] for each in reports]
    assert codes == [["D003"], [], [], [], ["D101"]]
    assert reports[0].findings[0].message == "ZeroDivisionError: no reason"


def test_a_check_that_begins_anew_is_reported_by_its_last_try() -> None:
    """It may do so when it is already waited for."""
    is_waited_for = threading.Event()

    def tries_twice(each: Check) -> None:
        is_waited_for.wait(30)
        each.findings = []
        each.report("D101", "none")

    slow = check("slow", tries_twice)
    release = check("release", lambda each: threading.Timer(0.2, is_waited_for.set).start())
    [report, _] = run_all([slow, release])
    assert [finding.rule.code for finding in report.findings] == ["D101"]


def test_a_package_that_is_missing_is_a_finding_of_the_first_check_that_needs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each module of checks is imported when its check runs."""
    monkeypatch.delitem(
        sys.modules, "spu_assigner.stream.audit.doctor.broker_checks", raising=False
    )
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    checks = checks_of(call("--output=json", "--role", "producer", "-b", "127.0.0.1:1"))
    assert [each["code"] for each in checks["broker"]["findings"]] == ["D116"]
    assert checks["packages"]["state"] == "ok"
    assert checks["rights"]["findings"] == []
    assert checks["rights"]["not_checked"].startswith("a package cannot be imported (")


def test_a_module_of_the_product_that_is_missing_or_damaged_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installation may lack a part; packages of others are reported by their own code."""
    package = tmp_path / "half_installed"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "inner" / "__init__.py").touch()
    (package / "inner" / "lacking.py").write_text("import half_installed.missing\n")
    (package / "inner" / "damaged.py").write_text("1 +\n")
    (package / "foreign.py").write_text("import no_such_package\n")
    (package / "sound.py").write_text("import json\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = dict(machine_checks.broken_modules(["half_installed"]))
    assert found.pop("half_installed.inner.damaged").startswith("SyntaxError: invalid syntax")
    assert found == {"half_installed.inner.lacking": "No module named 'half_installed.missing'"}
    assert dict(machine_checks.broken_modules(machine_checks.OWN_PACKAGES)) == {}


def test_a_check_that_does_not_end_is_reported_and_not_waited_for() -> None:
    """What it had found by then counts, and what came later does not."""
    begun, go_on, late = threading.Event(), threading.Event(), threading.Event()

    def hangs(check: Check) -> None:
        check.report("D101", "early")
        begun.set()
        go_on.wait(LATER)
        check.report("D101", "late")
        late.set()

    stuck = check("stuck", hangs, seconds=0.0)
    waiting = check("waiting", lambda each, *, stuck: None, stuck, seconds=0.0)
    stuck.start()
    assert begun.wait(LATER)
    first = stuck.finish()
    waiting.start()
    deadline = time.monotonic() + LATER
    while waiting._waits_for is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    second = waiting.finish()
    assert (second.findings, second.unchecked) == ([], "stuck did not end in time")
    go_on.set()
    assert late.wait(LATER)
    assert [(each.rule.code, each.message) for each in first.findings] == [
        ("D101", "early"),
        ("D002", "the check of stuck did not end in time"),
    ]


def test_the_time_limit_grows_with_the_load_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that waits for a processor has found nothing wrong; a limit that was given stays."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    grows, stays = TimeLimit(seconds=100, grows=True), TimeLimit(seconds=100)
    for load, slowness in ((0.1, 1), (2.0, 1), (8.0, 4), (1_000.0, SLOWNESS_MAX)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert (grows.slowness, stays.slowness) == (slowness, 1)
        assert 100 * slowness - LATER < grows.left <= 100 * slowness
        assert 100 - LATER < stays.left <= 100


def test_a_check_is_waited_for_until_the_limit_that_has_grown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was begun when nothing else was running."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setattr(os, "getloadavg", lambda: (1.0, 0.0, 0.0))
    go_on = threading.Event()
    limit = TimeLimit(seconds=LATER / SLOWNESS_MAX, grows=True, begun=time.monotonic() - LATER / 2)
    slow = Check("slow", lambda check: go_on.wait(LATER), target=TARGET, limit=limit)
    assert limit.left == 0
    monkeypatch.setattr(os, "getloadavg", lambda: (SLOWNESS_MAX, 0.0, 0.0))
    threading.Timer(0.1, go_on.set).start()
    slow.start()
    assert slow.finish().findings == []


def test_packages_that_are_missing_have_one_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    """One command brings all of them."""
    is_found = metadata.version
    monkeypatch.setattr(
        metadata,
        "version",
        lambda name: is_found(name) if name == "click" else _missing(name),
    )
    one = check("packages", machine_checks.check_packages)
    one.start()
    missing = [each for each in one.finish().findings if each.rule.code == "D111"]
    assert len(missing) > 2
    (fix,) = {each.fix for each in missing}
    assert all(each.message.partition(" ")[0] in fix for each in missing)
    assert "click" not in fix


def _missing(name: str) -> str:
    raise metadata.PackageNotFoundError(name)


def test_a_fix_of_several_findings_is_said_once() -> None:
    """Nine packages or topics, and one command that brings them all."""
    one = check("one", lambda each: None)
    for number, fix in enumerate(("f", "f", "f", "g", "f")):
        one.report("D101", f"m{number}", fix)
    one.start()
    assert [text for _, text in _texts(one.finish())] == [
        "D101 m0",
        "D101 m1",
        "D101 m2\n→ f",
        "D101 m3\n→ g",
        "D101 m4\n→ f",
    ]


def test_without_a_broker_the_machine_alone_is_looked_at(tmp_path: Path) -> None:
    """As after set-up: `run` starts a broker of its own. Nothing is made."""
    result = call("--output=json", "--checkpoint", str(tmp_path / "new/checkpoint"))
    checks = checks_of(result)
    assert result.return_value == 0, result.output
    assert all(not each["findings"] for each in checks.values()), result.output
    reason = "no broker is named (--bootstrap-servers); `run` starts one of its own then"
    of_kafka = ["broker", "rights", "topics", "clock", "marker", "input"]
    assert [name for name, each in checks.items() if each["not_checked"] == reason] == of_kafka
    assert "first start creates it" in checks["checkpoint"]["found"]
    assert "broker" in checks["jars"]["found"]
    assert list(tmp_path.iterdir()) == []


def test_a_role_is_asked_for_what_it_needs_alone() -> None:
    """A producer needs no Java, and has no checkpoint."""
    result = call("--output=json", "--role", "producer", "-b", "127.0.0.1:1")
    assert list(checks_of(result)) == [
        "settings",
        "python",
        "packages",
        "broker",
        "rights",
        "topics",
    ]
    assert result.return_value == 1


def test_wrong_settings_are_a_finding_and_the_machine_is_looked_at() -> None:
    """Java may be missing as well."""
    checks = checks_of(call("--output=json", SPU_ASSIGNER_SHARDS="many"))
    assert checks["settings"]["findings"][0]["code"] == "D001"
    assert checks["java"]["state"] == "ok"
    assert checks["broker"]["not_checked"] == "the settings cannot be used"


def test_warnings_count_with_strict_alone(tmp_path: Path) -> None:
    """A taken port is one: Spark takes the next."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        environ = {
            "SPU_ASSIGNER_UI_PORT": str(taken.getsockname()[1]),
            "SPU_ASSIGNER_CHECKPOINT": str(tmp_path / "c"),
        }
        lenient, strict = call(**environ), call("--strict", **environ)
    assert (lenient.return_value, strict.return_value) == (0, 1), lenient.output
    assert "! " in lenient.stdout
    assert "D131 127.0.0.1:" in lenient.stdout
    assert "→ nothing if that is the job; else stop it, or choose another" in lenient.stdout
    assert "SPU_ASSIGNER_METRICS_PORT" in lenient.stdout
    assert "0 faults, 1 warning; 6 of 14 checks not made" in lenient.stdout


@pytest.mark.parametrize(("host", "code"), [("127.0.0.1", "D131"), ("192.0.2.1", "D134")])
def test_an_unusable_address_for_metrics_is_reported(host: str, code: str) -> None:
    """A taken port is passed over by the job; an address of another machine is not."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        environ = {"SPU_ASSIGNER_METRICS_HOST": host, "SPU_ASSIGNER_METRICS_PORT": port}
        result = call("--output=json", **environ)
    assert [each["code"] for each in checks_of(result)["ports"]["findings"]] == [code]


def test_a_checkpoint_elsewhere_is_left_to_spark() -> None:
    """It says so, and is no fault."""
    checks = checks_of(call("--output=json", "--checkpoint", "hdfs://host/checkpoint"))
    result = checks["checkpoint"]["not_checked"]
    assert result == "the checkpoint is at hdfs://host/checkpoint, where only Spark can read"


@pytest.mark.parametrize(("least", "code"), [(1 << 62, "D132"), (0, "D133")])
def test_a_full_disk_is_reported(
    least: int, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place need not be there yet."""
    monkeypatch.setattr(machine_checks, "FREE_LEAST", least)
    monkeypatch.setattr(machine_checks, "FREE_LOW", 1 << 62)
    checks = checks_of(call("--output=json", "--checkpoint", str(tmp_path / "not/yet")))
    found = checks["disk"]["findings"]
    assert {each["code"] for each in found} == {code}
    assert f"free at {tmp_path}" in found[0]["message"]


def test_foreign_text_cannot_move_the_cursor() -> None:
    """A folder's name may hold anything."""
    result = call("--checkpoint", "/dev/null/\x1b[2J", "-b", "127.0.0.1:1")
    assert "\x1b" not in result.stdout


def test_a_broker_without_topic_ids_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it supports is read from its answer to ApiVersions."""

    class OldBroker:
        def __init__(self, **settings: object) -> None:
            assert settings["bootstrap_servers"] == ["127.0.0.1:9092"]

        def api_versions(self) -> dict[ApiKey, tuple[int, int]]:
            versions = dict.fromkeys(ApiKey, (0, 9))
            del versions[ApiKey.EndTxn]
            return versions

        def describe_features(self) -> dict[str, object]:
            return {"metadata.version": {"supported": (1, 9), "finalized": (1, 7)}}

        def close(self) -> None:
            """Nothing to close."""

    monkeypatch.setattr("kafka.admin.KafkaAdminClient", OldBroker)
    one = check("broker", lambda each: None)
    _check_features(one, Settings.load(environ={}).connection())
    assert [(each.rule.code, each.message) for each in one.findings] == [
        (
            "D210",
            "the broker does not support EndTxn version 1 (transactions), "
            "Metadata version 10 (topic ids, Kafka 2.8)",
        )
    ]
    assert one.summary == ", metadata.version 7"


def test_moves_of_a_run_that_writes_no_more_are_nobodys() -> None:
    """A run that was killed is at work no longer; one that lives moves what it has recorded."""
    moved = MovedPartition(topic="t", topic_id="", partition=1, before=(), after=(), size_bytes=0)
    run = replace(begun_run("c1"), moves=(moved,), recorded_at=1_000_000)
    moving = {TopicPartition("t", 1): {}, TopicPartition("t", 2): {}}
    own, others = split_moves(moving, run, now_ms=1_000_000 + 59_000)
    assert ([*own], [*others]) == ([TopicPartition("t", 1)], [TopicPartition("t", 2)])
    for other in (None, replace(run, state=MovesState.STOPPED)):
        assert split_moves(moving, other, now_ms=1_000_000) == ({}, moving)
    assert split_moves(moving, run, now_ms=1_000_000 + 61_000) == ({}, moving)
    assert _ended_early(run, now_ms=1_000_000 + 59_000) is None
    assert _ended_early(run, now_ms=1_000_000 + 61_000) == run
    stopped = replace(run, state=MovesState.STOPPED)
    assert _ended_early(stopped, now_ms=1_000_000) == stopped
    assert _ended_early(replace(stopped, moves=()), now_ms=1_000_000) is None


@pytest.mark.parametrize(
    ("version", "bound", "is_met"),
    [
        ("4.2.0", "==4.2.0", True),
        ("4.2.1", "==4.2.0", False),
        ("4.2.0", ">=4.2", True),
        ("4.1.9", ">=4.2", False),
        ("4.3.10", "<4.4", True),
        ("4.10.0", "<4.4", False),
        ("4.4.0", "<4.4", False),
        ("4.3.0", "~=4.3", False),  # what nobody wrote here is met by nothing
    ],
)
def test_versions_are_compared_by_number(version: str, bound: str, is_met: bool) -> None:
    """Each package may be one of a range."""
    assert machine_checks.is_within(version, bound) is is_met
