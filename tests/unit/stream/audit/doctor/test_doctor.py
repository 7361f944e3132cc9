"""`spu-assigner doctor` without a broker: its checks, their codes, and the report."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from spu_assigner.core.base.errors import AssignerError, InvariantError
from spu_assigner.schemas.messages.wire import MovedPartition, MovesState, ThrottleValue
from spu_assigner.stream.audit.doctor.checks import CHECKS, DoctorCheck, run_checks
from spu_assigner.stream.audit.doctor.command import doctor
from spu_assigner.stream.audit.doctor.look import DoctorLook, NotCheckedError, rules
from spu_assigner.stream.audit.doctor.target_checks import report_moves
from spu_assigner.stream.clusters.moves.reassigning import Ongoing
from spu_assigner.stream.clusters.moves.run_record import begun_run
from spu_assigner.stream.common.daemon_threads import DaemonThread
from spu_assigner.stream.job.start_checks import START_CHECKS, StartLook
from spu_assigner.stream.kafka.acls import Role
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.connection_diagnosis import ConnectionRefusal, UnreachableError
from spu_assigner.stream.kafka.errors import AccessError, RenewedError
from spu_assigner.stream.local.jvm.jars import JarError
from spu_assigner.stream.local.jvm.java import EXPECTED

ROOT = Path(__file__).parents[5]
DOCUMENT = ROOT / "docs/doctor.md"
FOLDER = ROOT / "stream/audit/doctor"
LATER = 60.0
RATE = ThrottleValue(broker=1, topic=None, setting="rate", value="5", before=None)


def call(*arguments: str, **environ: str) -> Result:
    """In an environment of its own; its checks have all the time they want."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPU_")}
    with pytest.MonkeyPatch.context() as patch:
        ports = {"SPU_ASSIGNER_UI_PORT": "0", "SPU_ASSIGNER_METRICS_PORT": "off"}
        patch.setattr("os.environ", {**kept, **ports, **environ})
        return CliRunner().invoke(
            doctor, ["--timeout", str(LATER), *arguments], standalone_mode=False
        )


def checks_of(result: Result) -> dict[str, dict[str, Any]]:
    assert result.exception is None, result.output
    return {each["check"]: each for each in json.loads(result.stdout)["checks"]}


def new_look() -> DoctorLook:
    return DoctorLook(start=StartLook(settings=Settings.load(environ={})))


def test_every_code_has_a_name_of_its_own_and_is_in_the_docs() -> None:
    """Scripts and docs/doctor.md name them; each is reported somewhere."""
    assert len({rule.name for rule in rules().values()}) == len(rules()) > 30
    assert list(rules()) == sorted(rules())
    written = DOCUMENT.read_text(encoding="utf-8")
    table = written.partition("<!-- findings -->\n")[2].partition("\n<!-- /findings -->")[0]
    lines = ["| code | name | what is found |", "| --- | --- | --- |"]
    for rule in rules().values():
        weight = "" if rule.severity == "fault" else " (a warning)"
        lines.append(f"| {rule.code} | {rule.name} | {rule.about}{weight} |")
    assert table.splitlines() == lines
    assert EXPECTED in rules()["D101"].fix
    code = "".join(path.read_text("utf-8") for path in FOLDER.glob("*.py"))
    of_errors = {rule.code for rule in rules().values() if rule.error}
    assert {*re.findall(r'"(D\d{3})"', code)} | of_errors == {*rules()}


def test_the_errors_that_have_a_code_are_there() -> None:
    """They are named by text, so that no wing is imported for it."""
    sources = "".join(path.read_text("utf-8") for path in ROOT.glob("[cs]*/**/*.py"))
    of_errors = [rule.error for rule in rules().values() if rule.error]
    assert len(of_errors) == len({*of_errors})
    without_class = {each for each in of_errors if f"class {each}(" not in sources}
    assert without_class == {*ConnectionRefusal}


def test_the_checks_of_the_jobs_start_are_those_of_the_doctor() -> None:
    """One list, in its order; what more there is, only a person wants."""
    names = [check.name for check in CHECKS]
    of_the_job = [check.name for check in START_CHECKS]
    assert [name for name in names if name in of_the_job] == of_the_job
    assert {*names} - {*of_the_job} == {"settings", "jars", "batches", "target"}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (JarError("jars are missing; run it"), ("D121", "jars are missing", "run it")),
        (UnreachableError("it hangs; wait; or go"), ("D202", "it hangs", "wait; or go")),
        (UnreachableError("a; b", ConnectionRefusal.USER), ("D209", "a", "b")),
        (AccessError("a: x; b: y; grant it"), ("D301", "a: x; b: y", "grant it")),
        (RenewedError("gone"), ("D214", "gone", None)),
        (InvariantError("a\nb"), ("D003", None, None)),
    ],
)
def test_an_error_of_the_job_is_a_finding_by_its_class(
    error: AssignerError, expected: tuple[str, str | None, str | None]
) -> None:
    """Its line says what was found, and what to do; where it does not, the code does."""
    look = new_look()
    look.report_error(error)
    (finding,) = look.current.findings
    code, message, fix = expected
    wanted = (code, message or " ".join(str(error).split()), fix or rules()[code].fix)
    assert (finding.code, finding.message, finding.fix) == wanted


def test_a_check_that_fails_breaks_or_hangs_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """What needs it says so, with the reason; what is late is not waited for."""
    is_stuck, go_on = threading.Event(), threading.Event()
    monkeypatch.setattr(DaemonThread, "join", lambda self, seconds: is_stuck.wait(seconds))

    def breaks(look: DoctorLook) -> str:
        raise ZeroDivisionError("no\nreason")

    def fails(look: DoctorLook) -> str:
        raise JarError("none; get one")

    def says(look: DoctorLook) -> str:
        raise NotCheckedError("there is nothing to check")

    def warns(look: DoctorLook) -> str:
        look.current.add("D511", "held")
        return "all"

    def hangs(look: DoctorLook) -> str:
        is_stuck.set()
        go_on.wait(LATER)
        return ""

    checks = (
        DoctorCheck(name="broken", look=breaks),
        DoctorCheck(name="failed", look=fails),
        DoctorCheck(name="silent", look=says),
        DoctorCheck(name="one", look=warns, needs=("broken",)),
        DoctorCheck(name="two", look=warns, needs=("failed",)),
        DoctorCheck(name="three", look=warns, needs=("one",)),
        DoctorCheck(name="four", look=warns),
        DoctorCheck(name="five", look=warns, needs=("four",)),
        DoctorCheck(name="other", look=breaks, roles=(Role.MOVER,)),
        DoctorCheck(name="stuck", look=hangs),
        DoctorCheck(name="after", look=warns),
    )
    reports = run_checks(new_look(), LATER, checks)
    go_on.set()
    unexpected = "the check of broken ended with an unexpected error"
    late = "the check of stuck did not end in time"
    assert [
        (each.name, [finding.code for finding in each.findings], each.not_checked)
        for each in reports
    ] == [
        ("broken", ["D003"], None),
        ("failed", ["D121"], None),
        ("silent", [], "there is nothing to check"),
        ("one", [], unexpected),
        ("two", [], "the check of failed failed"),
        ("three", [], unexpected),
        ("four", ["D511"], None),
        ("five", ["D511"], None),
        ("stuck", ["D002"], late),
        ("after", [], late),
    ]
    assert reports[0].findings[0].message == "ZeroDivisionError: no reason"


def test_without_a_broker_the_machine_alone_is_looked_at(tmp_path: Path) -> None:
    """As after set-up: `run` starts a broker of its own. Nothing is made."""
    result = call("--output=json", "--checkpoint", str(tmp_path / "new/checkpoint"))
    checks = checks_of(result)
    assert result.return_value == 0, result.output
    assert all(not each["findings"] for each in checks.values()), result.output
    reason = "no broker is named (--bootstrap-servers); `run` starts one of its own then"
    of_kafka = ["kafka", "marker", "input", "batches"]
    assert [name for name, each in checks.items() if each["not_checked"] == reason] == of_kafka
    assert "first start creates it" in checks["checkpoint"]["found"]
    assert "broker" in checks["jars"]["found"]
    assert list(tmp_path.iterdir()) == []


def test_a_role_is_asked_for_what_it_needs_alone() -> None:
    """A producer needs no Java, and has no checkpoint."""
    result = call("--output=json", "--role", "producer", "-b", "127.0.0.1:1", "--timeout", "2")
    assert list(checks_of(result)) == ["settings", "kafka"]
    assert result.return_value == 1


def test_wrong_settings_are_a_finding_and_the_machine_is_looked_at() -> None:
    """Java may be missing as well."""
    found = checks_of(call("--output=json", SPU_ASSIGNER_SHARDS="many"))
    (finding,) = found["settings"]["findings"]
    assert (finding["code"], finding["fix"]) == ("D001", "correct SPU_ASSIGNER_SHARDS")
    assert found["java"]["state"] == "ok"
    assert found["kafka"]["not_checked"] == "the settings cannot be used"


def test_warnings_count_with_strict_alone(tmp_path: Path) -> None:
    """Jars that are missing are one: a start fetches them."""
    environ = {"SPU_ASSIGNER_CACHE": str(tmp_path), "SPU_ASSIGNER_CHECKPOINT": str(tmp_path / "c")}
    lenient, strict = call(**environ), call("--strict", **environ)
    assert (lenient.return_value, strict.return_value) == (0, 1), lenient.output
    assert "! " in lenient.stdout
    assert "D121 jars are missing, or differ from the lock: " in lenient.stdout
    assert "→ run `python -m spu_assigner.stream.setup`" in lenient.stdout
    assert "0 faults, 1 warning; 4 of 9 checks not made" in lenient.stdout


@pytest.mark.parametrize(("host", "state"), [("127.0.0.1", "ok"), ("192.0.2.1", "fault")])
def test_an_unusable_address_for_metrics_is_reported(host: str, state: str) -> None:
    """A taken port is passed over by the job; an address of another machine is not."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        environ = {"SPU_ASSIGNER_METRICS_HOST": host, "SPU_ASSIGNER_METRICS_PORT": port}
        result = call("--output=json", **environ)
    assert checks_of(result)["metrics"]["state"] == state


@pytest.mark.parametrize(
    ("checkpoint", "said"),
    [
        ("hdfs://host/c", "the checkpoint is at hdfs://host/c, where only Spark can read"),
        ("/dev/null/\x1b", "/dev/null/\\x1b cannot be made a private folder (Not a directory)"),
    ],
)
def test_a_checkpoint_that_cannot_be_read_here_is_said(checkpoint: str, said: str) -> None:
    """Elsewhere only Spark reads it, which is no fault."""
    found = checks_of(call("--output=json", "--checkpoint", checkpoint))["checkpoint"]
    messages = [each["message"] for each in found["findings"]]
    assert (found["not_checked"] or messages[0]) == said


def test_moves_of_a_run_that_writes_no_more_are_nobodys() -> None:
    """A run that was killed is at work no longer; one that lives moves what it has recorded."""
    moved = MovedPartition(topic="t", topic_id="", partition=1, before=(), after=(), size_bytes=0)
    run = replace(begun_run("c1"), moves=(moved,), recorded_at=1_000_000)
    stopped = replace(run, state=MovesState.STOPPED)
    ongoing = Ongoing(replicas=(1, 2), adding=(2,), removing=(1,))
    moving = {("t", 1): ongoing, ("t", 2): ongoing}
    ours = "D604 1 partition being moved, and by a run of `apply --moves` for cluster 'c1' that "
    foreign = "D604 1 partition being moved, and not by a running `apply --moves`: t-2 (adding 2, "
    both = "D604 2 partitions being moved, and not by a running `apply --moves`: t-1 (adding 2, "
    limited = "D603 no partition is being moved, and replication is limited: broker 1: 5"
    for given, under_way, throttles, seconds, expected in (
        (run, moving, (), 59, [(foreign, False)]),
        (run, {("t", 1): ongoing}, ("broker 1: 5",), 0, []),
        (run, moving, (), 61, [(ours, True), (foreign, False)]),
        (stopped, moving, (), 0, [(ours, True), (foreign, False)]),
        (None, moving, (), 0, [(both, False)]),
        (replace(stopped, throttles=(RATE,)), {}, ("broker 1: 5",), 0, [(limited, True)]),
        (stopped, {}, ("broker 1: 5",), 0, [(limited, False)]),
    ):
        look = new_look()
        report_moves(look, under_way, throttles, given, now_ms=1_000_000 + 1000 * seconds)
        for each, (words, resumes) in zip(look.current.findings, expected, strict=True):
            assert f"{each.code} {each.message}".startswith(words)
            assert ("apply --moves --cluster c1`" in each.fix) is resumes
