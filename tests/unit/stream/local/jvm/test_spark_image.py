"""The archive of Spark's classes: of one Java and one class path, and never in the way."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from spu_assigner.stream.job.run import spark_class_archive as spark_image
from spu_assigner.stream.local.jvm import spark_class_archive as lookup
from spu_assigner.stream.local.jvm.java import Java

JARS = [Path("a.jar"), Path("b.jar")]


@pytest.fixture
def java(tmp_path: Path) -> Java:
    home = tmp_path / "java"
    home.mkdir()
    (home / "release").write_text('JAVA_VERSION="17.0.1"')
    return Java(home=home, version=17, source="PATH")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"SPU_ASSIGNER_CACHE": str(tmp_path / "cache")}


def test_it_is_of_one_java_and_one_class_path(java: Java, environ: dict[str, str]) -> None:
    assert lookup.jvm_options(java, JARS, environ) == []
    folder = lookup.archive_folder(java, JARS, environ)
    folder.mkdir(parents=True)
    (folder / "classes.jsa").write_bytes(b"")
    option, *_ = lookup.jvm_options(java, JARS, environ)
    assert option == f"-XX:SharedArchiveFile={folder / 'classes.jsa'}"
    assert lookup.jvm_options(java, JARS[::-1], environ) == []
    (java.home / "release").write_text('JAVA_VERSION="17.0.2"')
    assert lookup.jvm_options(java, JARS, environ) == []


def test_it_is_of_the_jars_as_they_are(
    java: Java, environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JVM that finds a jar of another time passes the archive over and says nothing."""
    package = tmp_path / "pyspark"
    ours, sparks = tmp_path / "ours.jar", package / "jars" / "spark.jar"
    sparks.parent.mkdir(parents=True)
    monkeypatch.setattr(lookup, "pyspark_folder", lambda: package)
    for jar in (ours, sparks):
        jar.write_bytes(b"")
    folders = [lookup.archive_folder(java, [ours], environ)]
    for jar in (ours, sparks):
        os.utime(jar, (1, 1))
        folders.append(lookup.archive_folder(java, [ours], environ))
    assert len(set(folders)) == 3


def test_what_cannot_be_made_is_reported_and_done_without(
    java: Java, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set-up is not complete then: it tries again."""
    log = Path(environ["SPU_ASSIGNER_CACHE"]) / "spark_class_archive.log"
    for seconds_max, why in ((0.1, " seconds"), (60.0, "exit status 1.")):
        monkeypatch.setattr(spark_image, "MAKE_SECONDS_MAX", seconds_max)
        reported: list[str] = []
        found = {**os.environ, **environ}
        assert not spark_image.ensure_spark_image(java, JARS, found, reported.append)
        end = f"{why}); its log is {log}; `python -m spu_assigner.stream.setup` tries again"
        assert reported[-1].endswith(end)
        assert log.is_file()
        assert lookup.jvm_options(java, JARS, environ) == []
        assert list(log.parent.glob(".scratch-*")) == []
        monkeypatch.setattr(sys, "executable", "/bin/false")


def test_no_more_archives_are_kept_than_some_environments_need(
    java: Java, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes 100 MB, and an environment that is made anew needs another."""
    monkeypatch.setenv("SPU_ASSIGNER_CACHE", environ["SPU_ASSIGNER_CACHE"])
    images = lookup.archive_folder(java, JARS).parent
    for number in range(5):
        (images / str(number)).mkdir(parents=True)
        os.utime(images / str(number), (number, number))
    said: list[str] = []
    with spark_image.written_at_end(java, JARS, said.append) as (option, _):
        Path(option.removeprefix("-XX:ArchiveClassesAtExit=")).touch()  # As a JVM does.
    assert lookup.jvm_options(java, JARS)
    assert len(said) == 1
    kept = {path.name for path in images.iterdir()}
    assert kept > {"2", "3", "4"}
    assert len(kept) == spark_image.ARCHIVES_MAX
    with spark_image.written_at_end(java, JARS, said.append) as options:
        assert options == []
    assert len(said) == 1
