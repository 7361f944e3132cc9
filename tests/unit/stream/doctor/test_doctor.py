"""`spu-assigner doctor` where there is no broker: its checks, their codes, and how it is told."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from spu_assigner.stream.cli import cli
from spu_assigner.stream.doctor.api_versions import Abilities, ask_abilities, parse
from spu_assigner.stream.doctor.check_runner import Check, Unchecked, run_all
from spu_assigner.stream.doctor.command import doctor
from spu_assigner.stream.doctor.explain_code import describe, explained, rule_of, rules
from spu_assigner.stream.doctor.machine_checks import check_disk
from spu_assigner.stream.doctor.rules import DISK_LOW, JAVA_MISSING

DOCUMENT = Path(__file__).parents[4] / "docs/doctor.md"
LATER = 60.0


def call(*arguments: str, **environ: str) -> Result:
    """In an environment of its own; its checks have all the time they want."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPU_")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.environ", {**kept, **environ})
        return CliRunner().invoke(
            doctor,
            ["--timeout", str(LATER), "--ui-port", "0", "--metrics-port", "off", *arguments],
            standalone_mode=False,
        )


def checks_of(told: Result) -> dict[str, dict[str, Any]]:
    assert told.exception is None, told.output
    return {each["check"]: each for each in json.loads(told.stdout)["checks"]}


def check(name: str, what: Callable[[Check[Any]], Any], *, seconds: float = LATER) -> Check[Any]:
    return Check(name, what, deadline=time.monotonic() + seconds)


def test_codes_are_told_apart_and_explained() -> None:
    """Scripts and docs/doctor.md name them: none twice, each with all its parts."""
    codes = [rule.code for rule in rules()]
    assert len({*codes}) == len(codes) > 50
    assert len({rule.name for rule in rules()}) == len(codes)
    assert all(rule.about and rule.why and rule.fix for rule in rules())
    written = DOCUMENT.read_text(encoding="utf-8")
    table = written.partition("<!-- findings -->\n")[2].partition("\n<!-- /findings -->")[0]
    assert table == describe()
    assert rule_of("d101") is rule_of("java-missing") is JAVA_MISSING
    assert rule_of("D999") is None
    assert "what to do: run `make setup`" in explained(JAVA_MISSING)
    assert explained(DISK_LOW).endswith("a warning: the exit status is 1 with --strict")


def test_explain_tells_a_code_and_checks_nothing() -> None:
    """Also by name; one that is not there is wrong usage."""
    told = CliRunner().invoke(cli, ["doctor", "--explain", "d502"])
    assert told.exit_code == 0
    assert told.stdout.startswith("D502 marker-ahead: the checkpoint is older than")
    wrong = CliRunner().invoke(cli, ["doctor", "--explain", "D999"])
    assert wrong.exit_code == 2
    assert "'D999' is no code" in wrong.stderr


def test_a_check_that_breaks_or_waits_hides_no_other() -> None:
    """What needs it says so, with the reason; what does not goes on."""

    def breaks(check: Check[Any]) -> None:
        raise ZeroDivisionError("no\nreason")

    def says(check: Check[Any]) -> None:
        raise Unchecked("there is nothing to look at")

    broken, silent = check("broken", breaks), check("silent", says)
    checks = [
        broken,
        silent,
        check("one", lambda each: each.needs(broken)),
        check("two", lambda each: each.needs(silent)),
        check("three", lambda each: each.tell(JAVA_MISSING, "none")),
    ]
    told = run_all(checks)
    assert [each.unchecked for each in told] == [
        "the check of broken ended with an error of its own",
        "there is nothing to look at",
        "the check of broken ended with an error of its own",
        "there is nothing to look at",
        None,
    ]
    assert [[f.rule.code for f in each.findings] for each in told] == [
        ["D003"],
        [],
        [],
        [],
        ["D101"],
    ]
    assert told[0].findings[0].message == "ZeroDivisionError: no reason"


def test_a_check_that_does_not_end_is_told_and_not_waited_for() -> None:
    """What it had found by then counts, and what came later does not."""
    begun, go_on = threading.Event(), threading.Event()

    def hangs(check: Check[Any]) -> None:
        check.tell(JAVA_MISSING, "early")
        begun.set()
        go_on.wait(LATER)
        check.tell(JAVA_MISSING, "late")

    stuck = check("stuck", hangs, seconds=0.0)
    waiting = check("waiting", lambda each: each.needs(stuck), seconds=0.0)
    stuck.start()
    assert begun.wait(LATER)
    first = stuck.finish()
    assert [each.message for each in first.findings] == [
        "early",
        "the check of stuck did not end in time",
    ]
    waiting.start()
    deadline = time.monotonic() + LATER
    while waiting._waits_for is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    second = waiting.finish()
    assert (second.findings, second.unchecked) == ([], "stuck did not end in time")
    go_on.set()
    assert stuck._ended.wait(LATER)
    assert [each.rule.code for each in first.findings] == ["D101", "D002"]


def test_without_a_broker_the_machine_alone_is_looked_at(tmp_path: Path) -> None:
    """As after set-up: `run` starts a broker of its own. Nothing is made."""
    told = call("--json", "--checkpoint", str(tmp_path / "new/checkpoint"))
    checks = checks_of(told)
    assert told.return_value == 0, told.output
    assert all(not each["findings"] for each in checks.values()), told.output
    reason = "no broker is named (--bootstrap-servers); `run` starts one of its own then"
    of_kafka = ["broker", "rights", "topics", "clock", "marker", "input"]
    assert [name for name, each in checks.items() if each["not_checked"] == reason] == of_kafka
    assert "first start makes it" in checks["checkpoint"]["found"]
    assert "broker" in checks["jars"]["found"]
    assert list(tmp_path.iterdir()) == []


def test_a_role_is_asked_for_what_it_needs_alone() -> None:
    """A producer needs no Java, and has no checkpoint."""
    told = call("--json", "--role", "producer", "-b", "127.0.0.1:1")
    assert list(checks_of(told)) == [
        "settings",
        "python",
        "packages",
        "broker",
        "rights",
        "topics",
    ]
    assert told.return_value == 1


def test_wrong_settings_are_a_finding_and_the_machine_is_looked_at() -> None:
    """Java may be missing as well."""
    checks = checks_of(call("--json", SPU_ASSIGNER_SHARDS="many"))
    assert checks["settings"]["findings"][0]["code"] == "D001"
    assert checks["java"]["state"] == "ok"
    assert checks["broker"]["not_checked"] == "the settings cannot be used"


def test_warnings_count_with_strict_alone(tmp_path: Path) -> None:
    """A taken port is one: Spark takes the next."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        arguments = ["--ui-port", str(taken.getsockname()[1]), "--checkpoint", str(tmp_path / "c")]
        lenient, strict = call(*arguments), call(*arguments, "--strict")
    assert (lenient.return_value, strict.return_value) == (0, 1), lenient.output
    assert "! " in lenient.stdout
    assert "D131 127.0.0.1:" in lenient.stdout
    assert (
        "→ stop what listens there, or choose another --ui-port or --metrics-port" in lenient.stdout
    )
    assert "0 faults, 1 warning; 6 of 14 checks not made" in lenient.stdout


@pytest.mark.parametrize(("host", "code"), [("127.0.0.1", "D131"), ("192.0.2.1", "D134")])
def test_an_address_for_metrics_that_cannot_be_had_is_told(host: str, code: str) -> None:
    """A taken port is passed over by the job; an address of another machine is not."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        told = call("--json", "--metrics-host", host, "--metrics-port", port)
    assert [each["code"] for each in checks_of(told)["ports"]["findings"]] == [code]


def test_a_checkpoint_elsewhere_is_left_to_spark() -> None:
    """It says so, and is no fault."""
    checks = checks_of(call("--json", "--checkpoint", "s3a://bucket/checkpoint"))
    told = checks["checkpoint"]["not_checked"]
    assert told == "the checkpoint is at s3a://bucket/checkpoint, where Spark alone can read"


@pytest.mark.parametrize(
    ("least", "low", "code"), [(1 << 62, 1 << 62, "D132"), (0, 1 << 62, "D133")]
)
def test_a_full_disk_is_told(least: int, low: int, code: str, tmp_path: Path) -> None:
    """The place need not be there yet."""
    one = check("disk", lambda each: None)
    check_disk(one, [tmp_path / "not/yet", tmp_path], least=least, low=low)
    assert [each.rule.code for each in one.findings] == [code]
    assert f"free at {tmp_path}" in one.findings[0].message


def test_foreign_text_cannot_move_the_cursor() -> None:
    """A folder's name may hold anything."""
    told = call("--checkpoint", "/dev/null/\x1b[2J", "-b", "127.0.0.1:1")
    assert "\x1b" not in told.stdout


def answer(pairs: list[tuple[int, int]], features: dict[str, int], *, error: int = 0) -> bytes:
    """As Kafka's protocol guide has it, version 3."""
    apis = b"".join(struct.pack(">hhh", key, 0, newest) + b"\0" for key, newest in pairs)
    finalized = bytes([len(features) + 1]) + b"".join(
        bytes([len(name) + 1]) + name.encode() + struct.pack(">hh", level, 1) + b"\0"
        for name, level in features.items()
    )
    epoch = struct.pack(">q", 7)
    tags = b"\2\1" + bytes([len(epoch)]) + epoch + b"\2" + bytes([len(finalized)]) + finalized
    head = struct.pack(">ih", 1, error) + bytes([len(pairs) + 1])
    return head + apis + struct.pack(">i", 0) + tags


def test_what_a_broker_can_do_is_read() -> None:
    """Requests and features; a tag that is not known is passed over."""
    pairs = [(3, 13), (22, 5), (24, 5), (26, 5), (32, 4)]
    found = parse(answer(pairs, {"metadata.version": 29, "group.version": 1}))
    assert found.versions == dict(pairs)
    assert found.features == {"metadata.version": 29, "group.version": 1}
    assert found.lacks() == []
    assert Abilities(versions={**found.versions, 3: 9}, features={}).lacks() == [
        "Metadata version 10 (topic ids, Kafka 2.8)"
    ]


def test_an_old_broker_answers_in_the_oldest_form() -> None:
    """It does not know the version that it is asked in."""
    old = struct.pack(">ihi", 1, 35, 1) + struct.pack(">hhh", 3, 0, 7)
    found = parse(old)
    assert found.versions == {3: 7}
    assert "InitProducerId version 1 (transactions)" in found.lacks()


@pytest.mark.parametrize(
    "garbled",
    [b"", b"HTTP/1.1 400 Bad Request\r\n", answer([(3, 13)], {})[:-3], answer([], {}, error=1)],
)
def test_what_is_no_answer_is_refused(garbled: bytes) -> None:
    """Whatever listens there may say anything."""
    with pytest.raises(ValueError, match=r"."):
        parse(garbled)


def test_an_answer_without_end_is_not_waited_for() -> None:
    """Its size is looked at first."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def reply() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(struct.pack(">i", 1 << 30))

        thread = threading.Thread(target=reply)
        thread.start()
        with pytest.raises(ValueError, match="an answer of 1073741824 bytes"):
            ask_abilities({}, "127.0.0.1", listener.getsockname()[1], LATER)
        thread.join()
