"""The archive of Spark's classes: of one Java and one class path, and never in the way."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from spu_assigner.stream import spark_image
from spu_assigner.stream.java import Java

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
    assert spark_image.jvm_options(java, JARS, environ) == []
    folder = spark_image._folder(java, JARS, environ)
    folder.mkdir(parents=True)
    (folder / "classes.jsa").write_bytes(b"")
    option, *_ = spark_image.jvm_options(java, JARS, environ)
    assert option == f"-XX:SharedArchiveFile={folder / 'classes.jsa'}"
    assert spark_image.jvm_options(java, JARS[::-1], environ) == []
    (java.home / "release").write_text('JAVA_VERSION="17.0.2"')
    assert spark_image.jvm_options(java, JARS, environ) == []


def test_it_is_of_the_jars_as_they_are(
    java: Java, environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JVM that finds a jar of another time passes the archive over and says nothing."""
    package = tmp_path / "pyspark"
    ours, sparks = tmp_path / "ours.jar", package / "jars" / "spark.jar"
    sparks.parent.mkdir(parents=True)
    monkeypatch.setattr(spark_image, "_package", lambda: package)
    for jar in (ours, sparks):
        jar.write_bytes(b"")
    folders = [spark_image._folder(java, [ours], environ)]
    for jar in (ours, sparks):
        os.utime(jar, (1, 1))
        folders.append(spark_image._folder(java, [ours], environ))
    assert len(set(folders)) == 3


def test_what_cannot_be_made_is_told_and_done_without(
    java: Java, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(sys, "executable", "/bin/false")
    spark_image.ensure_spark_image(java, JARS, environ, told.append)
    assert told[-1] == "it did not work, so Spark starts as ever: status 1"
    assert spark_image.jvm_options(java, JARS, environ) == []
    assert list(Path(environ["SPU_ASSIGNER_CACHE"]).glob(".scratch-*")) == []


def test_archives_of_environments_that_are_gone_are_removed(
    java: Java, environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = tmp_path / "cache" / "spark"
    for name in ("gone", "renewed", "there"):
        (images / name).mkdir(parents=True)
        (images / name / "classes.jsa").write_bytes(b"")
        package = tmp_path / name
        jar = package / "jars" / "spark.jar"
        jar.parent.mkdir(parents=True)
        jar.write_bytes(b"")
        os.utime(jar, (1, 1))
        note = "\n".join(spark_image._package_key(package))
        (images / name / "pyspark-folder").write_text(note)
    shutil.rmtree(tmp_path / "gone")
    os.utime(tmp_path / "renewed" / "jars" / "spark.jar", (2, 2))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    spark_image.ensure_spark_image(java, JARS, environ)
    assert [path.name for path in images.iterdir()] == ["there"]
