"""The audit's own judgement: what it is there to find, planted."""

from __future__ import annotations

import json
import subprocess
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import PackageMetadata
from pathlib import Path
from typing import cast

import pytest
from spu_assigner.stream.local.jvm.jars import Jar, read_lock
from support.project import audit
from support.project.audit import (
    APART,
    DECIDED,
    LOCKS,
    ROOT,
    Locked,
    advisory_faults,
    apart_faults,
    ask_advisories,
    declared_licences,
    installed_faults,
    jar_faults,
    jar_licence_faults,
    licence_faults,
    lock_faults,
    read_requirements,
)

_HASH = "--hash=sha256:" + "a" * 64
_DECIDED = tomllib.loads(DECIDED.read_text(encoding="utf-8"))
_TODAY = date(2026, 11, 1)


def locked(name: str, version: str, marker: str | None = None) -> Locked:
    return Locked(name=name, version=version, marker=marker)


def test_a_locked_requirement_is_read() -> None:
    """Name, version, marker; as uv writes them, over several lines."""
    text = (
        f"# why\nA.b==1.0 ; sys_platform == 'win32' \\\n    {_HASH} \\\n    {_HASH}\n    # via x\n"
    )
    assert read_requirements(text) == ([locked("a-b", "1.0", "sys_platform == 'win32'")], [])


@pytest.mark.parametrize(
    "line",
    [
        "numpy==2.0",
        "numpy",
        f"numpy>=2.0 {_HASH}",
        f"numpy==2.* {_HASH}",
        "numpy==2.0 --hash=sha256:abc",
        "numpy==2.0 --hash=md5:" + "a" * 32,
        f"numpy @ https://host/numpy.whl {_HASH}",
        "-e .",
        "--index-url https://host/simple",
    ],
)
def test_a_requirement_without_exact_version_and_hash_is_a_fault(line: str) -> None:
    """Pip would take another file than the one that was looked at."""
    found, faults = read_requirements(f"{line}\n")
    assert found == []
    assert faults == [f"{line.split(maxsplit=1)[0]!r} has no exact version with SHA-256 hashes"]


@pytest.mark.parametrize(
    "path", sorted([*ROOT.glob("**/requirements*.lock"), *ROOT.glob(APART)]), ids=lambda p: p.name
)
def test_the_projects_own_locks_have_no_fault(path: Path) -> None:
    """Also where nobody runs the audit itself."""
    found, faults = read_requirements(path.read_text(encoding="utf-8"))
    assert faults == []
    assert found


def test_what_is_installed_is_held_against_what_is_locked() -> None:
    """Another version, one that is missing, one that nobody locked; the rest is in order."""
    needed = [
        locked("same", "1"),
        locked("older", "2"),
        locked("missing", "3"),
        locked("elsewhere", "4", "sys_platform == 'win32'"),
    ]
    installed = {"same": "1", "older": "1", "stray": "9", "java": "5", "pip": "1"}
    assert installed_faults(needed, [locked("java", "5"), locked("absent", "6")], installed) == [
        "missing 3 is locked and not installed; run `make setup`",
        "older 1 is installed, 2 is locked; `make setup`",
        "stray 9 is installed and not locked; `make clean setup`",
    ]


def test_an_environment_apart_is_held_against_its_own_lock(tmp_path: Path) -> None:
    """A neighbour's packages run on this machine too; what it needs is no part of the project."""
    folder = tmp_path / "lib" / "python3" / "site-packages"
    installed = (("same", "1"), ("older", "1"), ("stray", "9"), ("setuptools", "65.5"))
    for name, version in installed:
        metadata = folder / f"{name}-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir(parents=True)
        licence = "Secret" if name == "same" else "MIT"
        metadata.write_text(f"Name: {name}\nVersion: {version}\nLicense-Expression: {licence}\n")
    needed = [locked("same", "1"), locked("older", "2"), locked("missing", "3")]
    fix = f"; remove its environment, {tmp_path}"
    assert sorted(apart_faults(needed, folder, _DECIDED)) == [
        f"missing 3 is locked and not installed{fix}",
        f"older 1 is installed, 2 is locked{fix}",
        "same is under 'Secret', which nobody has agreed to; see audit.toml",
        f"stray 9 is installed and not locked{fix}",
    ]


def test_each_lock_is_audited() -> None:
    """But two: one is a part of another, one has the oldest versions, for tests alone."""
    listed = subprocess.run(
        ["git", "ls-files", "*.lock"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    found = {
        path.relative_to(ROOT).as_posix()
        for pattern in (*LOCKS, APART)
        for path in ROOT.glob(pattern)
    }
    assert set(listed) - found == {"docker/requirements.lock", "tests/lowest.lock"}


def test_the_locks_of_neighbours_are_looked_at() -> None:
    """Their packages are downloaded and run as the project's own are."""
    assert [path.name for path in ROOT.glob(APART)] == ["quix.lock"]


def test_a_jar_with_another_hash_and_a_stray_one_are_faults(tmp_path: Path) -> None:
    """A changed file would run in the driver; so would one that was added to the folder."""
    good, bad = b"good", b"bad"
    hashes = ("770e607624d689265ca6c44884d0807d9b054d23c473c106c72be9de08b7376c", "0" * 64)
    jars = [
        Jar(coordinate=f"org:{name}:1", sha256=sha256, size=4)
        for name, sha256 in (("good", hashes[0]), ("bad", hashes[1]), ("gone", hashes[1]))
    ]
    (tmp_path / "good-1.jar").write_bytes(good)
    (tmp_path / "bad-1.jar").write_bytes(bad)
    (tmp_path / "stray-1.jar").write_bytes(bad)
    assert [fault.removeprefix(f"{tmp_path}/")[:28] for fault in jar_faults(tmp_path, jars)] == [
        "bad-1.jar has SHA-256 2f05d4",
        "gone-1.jar is missing",
        "stray-1.jar is in no lock",
    ]


def test_a_jar_without_hash_or_root_is_a_fault() -> None:
    """The lock itself is looked at, not believed; the project's own has no fault."""
    lock = read_lock()
    assert lock_faults(lock) == []
    loose = Jar(coordinate="org:loose:latest", sha256="", size=1)
    assert lock_faults({"spark-local": [loose]}) == [
        "com.globalmentor:hadoop-bare-naked-local-fs:0.1.0 is a root of spark-local and not in its "
        "lock",
        "org:loose:latest has no exact version with a SHA-256",
    ]


def test_every_jar_has_a_licence_that_was_agreed_to() -> None:
    """A new jar needs a line in the table; so does one under another licence."""
    jars = [jar for group in read_lock().values() for jar in group]
    assert jar_licence_faults(jars, _DECIDED["licences"]) == []
    stray = Jar(coordinate="com.oracle:ojdbc:1", sha256="", size=1)
    assert jar_licence_faults([stray], _DECIDED["licences"]) == [
        "com.oracle:ojdbc:1 is under None; see audit.toml"
    ]


@pytest.mark.parametrize(
    ("headers", "words", "faults"),
    [
        ({"License-Expression": "MIT OR Apache-2.0"}, ["MIT", "Apache-2.0"], []),
        ({"License-Expression": "MIT AND GPL-3.0-only"}, ["MIT", "GPL-3.0-only"], ["GPL-3.0-only"]),
        ({"Classifier": "License :: OSI Approved :: MIT License"}, ["MIT License"], []),
        ({"License": "Secret\nall rights"}, ["Secret"], ["Secret"]),
        ({}, [], None),
    ],
)
def test_a_licence_that_nobody_agreed_to_is_a_fault(
    headers: dict[str, str], words: list[str], faults: list[str] | None
) -> None:
    """As the package declares it: expression, else classifier, else text."""
    message = Message()
    for name, value in headers.items():
        message[name] = value
    found = declared_licences(cast(PackageMetadata, message))
    assert found == words
    reported = licence_faults("package", found, _DECIDED["licences"])
    if faults is None:
        assert reported == ["package declares no licence"]
    else:
        assert [fault.split("'")[1] for fault in reported] == faults


def test_an_exception_holds_for_its_package_alone() -> None:
    """Agreed to for one use, it is not agreed to for all."""
    assert licence_faults("hypothesis", ["MPL-2.0"], _DECIDED["licences"]) == []
    assert len(licence_faults("another", ["MPL-2.0"], _DECIDED["licences"])) == 1


def test_an_advisory_passes_only_with_a_reason_and_until_its_day() -> None:
    """What was let pass once must not be forgotten."""
    decided = [
        {"ids": ["G-1", "C-1"], "package": "a", "until": date(2026, 12, 1)},
        {"ids": ["G-2"], "package": "a", "until": date(2026, 10, 1)},
    ]
    found = {("a", "1"): ["G-1", "C-1", "G-2", "G-3"], ("b", "1"): ["G-1"]}
    assert advisory_faults(found, decided, _TODAY) == [
        "a 1: G-2 was let pass until 2026-10-01; look again",
        "a 1: G-3; take a newer one, or say why not",
        "b 1: G-1; take a newer one, or say why not",
    ]
    assert all(each["reason"] and each["until"] for each in _DECIDED["advisories"])


@contextmanager
def database(answer: bytes, asked: list[object]) -> Iterator[str]:
    """What answers as the database of advisories would."""

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the library's name
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Not to the terminal."""

    with (
        ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(audit, "ADVISORY_SECONDS_MAX", 60.0)  # An answer is looked at, not its time.
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_the_database_is_asked_once_for_all() -> None:
    """Python packages and jars alike; the answers come in the order of the questions."""
    asked: list[object] = []
    answer = {"results": [{}, {"vulns": [{"id": "G-1"}]}]}
    packages = [("PyPI", "numpy", "2.4.6"), ("Maven", "org:jar", "1.0")]
    with database(json.dumps(answer).encode(), asked) as url:
        assert ask_advisories(packages, url) == {("org:jar", "1.0"): ["G-1"]}
    assert asked == [
        {
            "queries": [
                {"package": {"ecosystem": "PyPI", "name": "numpy"}, "version": "2.4.6"},
                {"package": {"ecosystem": "Maven", "name": "org:jar"}, "version": "1.0"},
            ]
        }
    ]


@pytest.mark.parametrize("answer", [b"<html>", b'{"results": []}', b"{}"])
def test_an_answer_that_is_none_is_not_taken_for_a_clean_one(answer: bytes) -> None:
    """A portal or a proxy may answer in the database's place."""
    with database(answer, []) as url, pytest.raises((ValueError, KeyError)):
        ask_advisories([("PyPI", "numpy", "2.4.6")], url)


def test_a_package_that_declares_no_licence_needs_a_decision_of_its_own() -> None:
    """Somebody has to have read the text that it brings."""
    decided = {"allowed": [], "packages": {"known": {"licence": "MIT"}}}
    assert licence_faults("known", [], decided) == []
    assert licence_faults("package", [], decided) == ["package declares no licence"]
