"""What a session is given for the place of its checkpoint: for S3 more, for others nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from spu_assigner.stream import setup, submit
from spu_assigner.stream.job import session
from spu_assigner.stream.job.session import ensure_jars
from spu_assigner.stream.local.jvm.jars import EXTENSION, GROUPS, Group, read_lock
from support.project.jars_lock import ROOTS


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Group]:
    """The groups of jars that were wanted; nothing is fetched."""
    wanted: list[Group] = []

    def ensure_all(groups: Sequence[Group]) -> dict[Group, list[Path]]:
        wanted.extend(groups)
        return {group: [Path(f"/{group}.jar")] for group in groups}

    monkeypatch.setattr(session, "ensure_all", ensure_all)
    return wanted


@pytest.mark.parametrize("checkpoint", ["/c", "file:/c", "relative", "hdfs://host/c"])
def test_jars_for_s3_are_fetched_for_no_other_place(checkpoint: str, asked: list[Group]) -> None:
    """Who has no checkpoint there waits for nothing more."""
    assert "spark-s3" not in ensure_jars(checkpoint)
    assert asked == ["spark-local", "spark-kafka"]


def test_a_checkpoint_on_s3_brings_its_jars(asked: list[Group]) -> None:
    jars = ensure_jars("s3a://bucket/c", reads_kafka=False)
    assert asked == ["spark-local", "spark-s3"]
    assert jars["spark-s3"] == [Path("/spark-s3.jar")]


def test_what_is_to_be_submitted_has_the_jars_for_s3(
    asked: list[Group], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("SPU_ASSIGNER_CHECKPOINT", "s3a://bucket/c")
    assert submit.main() == 0
    option, jars, _ = capsys.readouterr().out.split()
    assert (option, jars) == ("--jars", f"/spark-kafka.jar,{EXTENSION},/spark-s3.jar")


def test_set_up_brings_the_jars_for_s3_when_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr(setup, "set_up", lambda _report, **given: told.append([*given.values()]))
    for arguments in ([], ["--s3"], ["--no-archive"]):
        monkeypatch.setattr("sys.argv", ["setup", *arguments])
        assert setup.main() == 0
    assert told == [[False, True], [True, True], [False, False]]  # with S3, with an archive


def test_a_server_of_ones_own_is_addressed_by_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has one name; Amazon has one for each bucket."""
    by_path = "spark.hadoop.fs.s3a.path.style.access"
    monkeypatch.delenv(session.S3_ENDPOINT, raising=False)
    assert by_path not in session.s3_options(is_brief=False)
    monkeypatch.setenv(session.S3_ENDPOINT, "https://host:9000")
    assert session.s3_options(is_brief=False)[by_path] == "true"


def test_the_jars_for_s3_bring_nothing_that_spark_has() -> None:
    """Two versions of a class on one path are an error of another day; nor is the SDK whole."""
    assert "spark-s3" in GROUPS
    brought = {jar.coordinate.split(":")[0] for jar in read_lock()["spark-s3"]}
    assert not brought & {each for root in ROOTS["spark-s3"] for each in root.without}
    assert sum(jar.size for jar in read_lock()["spark-s3"]) < 20_000_000
