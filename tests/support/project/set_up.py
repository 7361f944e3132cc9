"""Set up the project in .venv: packages, the product from its wheel, Java and jars.

    python3 tests/support/project/set_up.py run             # what `make run` needs, and no more
    python3 tests/support/project/set_up.py develop         # and what tests, checks, benches need
    python3 tests/support/project/set_up.py docs            # and mermaid.js for the pages
    python3 tests/support/project/set_up.py spark 4.3.0     # and build/spark-4.3.0, for its tests
    python3 tests/support/project/set_up.py lowest          # and build/lowest, likewise
    python3 tests/support/project/set_up.py lock            # resolve again, write the lock files

A step is done when what it reads has changed since it ended well: .venv/set-up.json has a digest
for each. Every package is checked against a lock with hashes. The rest of the machine is left
alone, but for the cache of jars.

This program makes the environment in which all others run. So it needs the standard library alone,
and works with Python 3.8: the interpreter that starts it need not be the one of the environment.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).absolute().parents[3]
SPARKS = ("4.2.1", "4.3.0")  # beside the locked one
PACKAGES = ("core", "schemas", "stream")
PYTHONS = ("python3", "python3.13", "python3.12", "python3.11", "python")
FITS = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"
BUILD_LOCK = "requirements-build.lock"
LOCKS = {"run": "docker/requirements.lock", "develop": "requirements.lock"}
MERMAID_LOCK = "docs/requirements-mermaid.lock"
LOG_LINES_SHOWN = 12  # of the log, where installing failed
# Of what an installer prints: what takes long.
SHOWN = re.compile(r"Downloading .*\([0-9]{2,}\.[0-9] ?Mi?B\)|Building .*(==|wheel.*started)")


class SetUpError(Exception):
    """Set-up cannot go on; the message says why and what to do."""


def pin_of(name: str, lock: str) -> str:
    """The lines of one package in the text of a lock."""
    match = re.search(rf"^{re.escape(name)}==.*\n(?:[ \t].*\n)*", lock, re.MULTILINE)
    if match is None:
        raise SetUpError(f"{name} is in no line of the lock; run `make lock`")
    return match[0]


def digest(root: Path, paths: Iterable[Path]) -> str:
    """One digest of the names and contents of files."""
    sha256 = hashlib.sha256()
    for path in sorted(paths):
        content = path.read_bytes()
        sha256.update(f"{path.relative_to(root)} {len(content)}\n".encode())
        sha256.update(content)
    return sha256.hexdigest()


def find_python(named: str | None) -> str:
    """The interpreter that is named, or the first that fits."""
    for candidate in [named] if named else PYTHONS:
        if shutil.which(candidate) and _status([candidate, "-c", FITS], quiet=True) == 0:
            return candidate
    what = f"{named} is not Python 3.11 or later" if named else "no Python 3.11 or later found"
    raise SetUpError(
        f"{what} with venv and ensurepip; install one, or name it: make setup PYTHON=/path/python3"
    )


def _status(
    command: list[str | Path], *, environ: dict[str, str] | None = None, quiet: bool = False
) -> int:
    out = subprocess.DEVNULL if quiet else None
    done = subprocess.run(command, cwd=ROOT, env=environ, stdout=out, stderr=out, check=False)
    return done.returncode


def _report(message: str) -> None:
    print(message, flush=True)


class Environment:
    """The project's environment, and what of it is done."""

    def __init__(self, python: str | None = None) -> None:
        self.folder = ROOT / ".venv"
        self.python = self.folder / "bin/python"
        self.uv = self.folder / "bin/uv"
        self.log = self.folder / "setup.log"
        self._named = python
        self._state = self.folder / "set-up.json"

    def for_running(self, *, look: bool = False) -> None:
        """What `make run` needs; `look`: whether Java and jars are still there."""
        self._make()
        self._install("run")
        self._finish("run", "--no-archive", look=look)

    def for_development(self, *, look: bool = False) -> None:
        """What all commands need."""
        self._make()
        self._install("develop")
        self._finish("develop", look=look)
        show_packages(ROOT / "build/types/spu_assigner")

    def with_other(self, name: str, lock: str) -> None:
        """An environment in build/ in which the packages of a lock come before those of .venv."""
        self.for_development()
        folder = ROOT / "build" / name
        python = folder / "bin/python"
        key = digest(ROOT, [ROOT / lock])
        self._once(name, key, lambda: self._make_other(folder, lock), is_there=python.exists())
        self._bring_java(python, folder / "java.stamp", name=f"java of {name}", look=False)

    def with_mermaid(self) -> None:
        """The mermaid.js of the pages: its wheel is unpacked and never installed."""
        self.for_development()
        folder = ROOT / "build/mermaid"
        key = digest(ROOT, [ROOT / MERMAID_LOCK])
        self._once("mermaid", key, lambda: self._unpack(folder), is_there=folder.exists())

    def write_locks(self) -> None:
        """Resolve the requirements again; not first install what may no longer be there."""
        if not self.uv.exists():
            self.for_development()
        common: list[str | Path] = [self.uv, "pip", "compile", "--quiet", "--universal"]
        common += ["--python-version", "3.11", "--generate-hashes"]
        common += ["--custom-compile-command", "make lock"]
        for arguments in lock_calls():
            if _status([*common, *arguments]) != 0:
                raise SetUpError(f"uv could not resolve {arguments[-1]}; it said why above")
        for spark in SPARKS:
            source = ROOT / f"build/pyspark-{spark}.in"
            source.write_text(f"pyspark=={spark}\n", encoding="utf-8")
            target = f"tests/spark/pyspark-{spark}.lock"
            if _status([*common, "--no-deps", "--no-annotate", source, "-o", target]) != 0:
                raise SetUpError(f"uv could not resolve {target}; it said why above")

    def _pip(self, command: str) -> list[str | Path]:
        return [self.python, "-m", "pip", "--disable-pip-version-check", "--no-input", command]

    def _make(self) -> None:
        if self.python.exists():  # A link to an interpreter that went does not.
            return
        python = find_python(self._named)
        _report(f"setup: {python} makes .venv")
        if _status([python, "-m", "venv", "--clear", self.folder]) != 0:
            raise SetUpError(f"{python} could not make .venv; it said why above")

    def _install(self, purpose: str) -> None:
        locks = [BUILD_LOCK, LOCKS[purpose]]
        key = digest(ROOT, [ROOT / lock for lock in locks])
        self._once(f"packages to {purpose}", key, lambda: self._install_locked(purpose, locks))
        if purpose == "develop":  # They are all of the others, and more.
            run_key = digest(ROOT, [ROOT / BUILD_LOCK, ROOT / LOCKS["run"]])
            self._once("packages to run", run_key, lambda: None)

    def _install_locked(self, purpose: str, locks: list[str]) -> None:
        """By uv, in a quarter of the time that pip takes; pip brings it.

        Behind a registry that needs settings uv does not get here, pip does all.
        """
        size = {"run": 550, "develop": 800}[purpose]
        _report(
            f"setup: Python packages to {purpose}, each checked against {locks[-1]} (the first "
            f"time about {size} MB; log: {self.log.relative_to(ROOT)})"
        )
        self.log.write_bytes(b"")
        pin = self.folder / "uv.lock"
        all_ = (ROOT / LOCKS["develop"]).read_text(encoding="utf-8")
        pin.write_text(pin_of("uv", all_), encoding="utf-8")
        pip = self._pip("install")
        uv: list[str | Path] = [self.uv, "pip", "install", "--system-certs"]
        # Spark comes as source: to compress the wheel made of it takes longer than all else.
        stored = "pyspark:--build-option=--compression=stored"
        uv += ["--python", self.python, "--config-settings-package", stored]
        is_there = self._logged([*pip, "--require-hashes", "--no-deps", "--requirement", pin])
        if is_there and self._install_by(uv, locks, self._for_uv()):
            return
        _report("  uv could not (see the log), so pip installs them, which takes longer")
        if not self._install_by(pip, locks, None):
            end = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
            shown = "\n".join(end[-LOG_LINES_SHOWN:])
            raise SetUpError(f"pip failed; the end of {self.log.relative_to(ROOT)}:\n{shown}")

    def _install_by(
        self, installer: list[str | Path], locks: list[str], environ: dict[str, str] | None
    ) -> bool:
        options = ["--require-hashes", "--no-build-isolation", "--requirement"]
        return all(self._logged([*installer, *options, lock], environ) for lock in locks)

    def _logged(self, command: list[str | Path], environ: dict[str, str] | None = None) -> bool:
        """Run it, keep what it prints, and show what takes long; whether it ended well."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            with process:
                for line in process.stdout or ():
                    log.write(line)
                    text = line.decode(errors="replace").rstrip()
                    if SHOWN.search(text):
                        _report(f"  {text}")
        return process.returncode == 0

    def _for_uv(self) -> dict[str, str]:
        """The environment of uv, which does not read where pip is set to find packages."""
        environ = {"UV_HTTP_TIMEOUT": "300", **os.environ}
        listed = subprocess.run(
            [self.python, "-m", "pip", "config", "list"],
            cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False,
        ).stdout  # fmt: skip
        for variable, name in (("UV_DEFAULT_INDEX", "index-url"), ("UV_INDEX", "extra-index-url")):
            found = re.findall(rf"^[a-z:]*\.{name}='(.*)'$", listed, re.MULTILINE)
            if found and not environ.get(variable):
                environ[variable] = found[-1]
        return environ

    def _finish(self, purpose: str, *options: str, look: bool) -> None:
        """The product as its users have it, and what no Python package brings."""
        self._once("wheel", product_digest(), self._install_wheel)
        stamp = self.folder / "java.stamp"
        self._bring_java(self.python, stamp, *options, name=f"java to {purpose}", look=look)
        self._once("java to run", product_digest(), lambda: None)

    def _install_wheel(self) -> None:
        _report("setup: the wheel, made and installed")
        dist = ROOT / "dist"
        shutil.rmtree(dist, ignore_errors=True)
        environ = {**os.environ, "HATCH_QUIET": "1"}
        options = ["build", "--directory", str(dist)]
        if _status([self.python, "-m", "hatchling", *options], environ=environ) != 0:
            raise SetUpError("the wheel could not be made; hatchling said why above")
        options = ["--quiet", "--no-index", "--no-deps", "--force-reinstall"]
        if _status([*self._pip("install"), *options, *dist.glob("*.whl")]) != 0:
            raise SetUpError("the wheel could not be installed; pip said why above")

    def _bring_java(self, python: Path, stamp: Path, *options: str, name: str, look: bool) -> None:
        """What makes Spark start faster may fail, then there is no stamp: the next time tries."""

        def bring() -> None:
            _report("setup: Java and jars")
            if stamp.exists():
                stamp.unlink()
            module = "spu_assigner.stream.setup"
            if _status([python, "-m", module, *options, "--stamp", stamp]) != 0:
                raise SetUpError(f"Java or jars are missing; {module} said why above")

        self._once(name, product_digest(), bring, is_there=stamp.exists() and not look)

    def _make_other(self, folder: Path, lock: str) -> None:
        _report(f"setup: {lock} into {folder.relative_to(ROOT)} (the first time 450 MB)")
        python = folder / "bin/python"
        if _status([self.python, "-m", "venv", "--clear", "--without-pip", folder]) != 0:
            raise SetUpError(f"{folder} could not be made; venv said why above")
        own, all_else = (_packages_folder(each) for each in (python, self.python))
        options = ["--quiet", "--require-hashes", "--no-deps", "--no-build-isolation"]
        if _status([*self._pip("install"), *options, "--target", own, "--requirement", lock]) != 0:
            raise SetUpError(f"the packages of {lock} could not be installed; pip said why above")
        line = f"import site; site.addsitedir({str(all_else)!r})\n"
        (own / "venv.pth").write_text(line, encoding="utf-8")

    def _unpack(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        pip = self._pip("download")
        options = ["--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
        if _status([*pip, *options, "--requirement", MERMAID_LOCK, "--dest", folder]) != 0:
            raise SetUpError(f"{MERMAID_LOCK} could not be fetched; pip said why above")
        for wheel in folder.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder)

    def _once(
        self, step: str, key: str, work: Callable[[], None], *, is_there: bool = True
    ) -> None:
        """Do a step if it was not done for this key; it is done when it has ended well."""
        try:
            state = json.loads(self._state.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            state = {}
        if state.get(step) == key and is_there:
            return
        work()
        state[step] = key
        self._state.write_text(json.dumps(state, indent=1), encoding="utf-8")


def product_digest() -> str:
    """Of all that goes into the wheel."""
    files = [ROOT / name for name in ("pyproject.toml", "README.md", "LICENSE")]
    for package in PACKAGES:
        files += [
            path
            for path in (ROOT / package).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        ]
    return digest(ROOT, files)


def show_packages(folder: Path) -> None:
    """The product's folders under the name they are imported by: mypy takes it from the path."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        link = folder / package
        if not link.is_symlink():
            link.symlink_to(Path("../../..") / package)


def lock_calls() -> list[list[str]]:
    """The arguments of `uv pip compile`, of each lock but those of one package alone."""
    job = ["pyproject.toml", "--extra", "job"]
    same = ["--constraints", "requirements.lock"]
    mermaid = ["--no-deps", "--group", "pyproject.toml:mermaid"]
    lowest = ["--resolution", "lowest-direct", "--no-emit-package", "pyspark"]
    java = "stream/local/jvm/requirements-java.lock"
    quix = "tests/bench/neighbours/quix"
    return [
        [*job, "--group", "dev", "--output-file", LOCKS["develop"]],
        [*job, *same, "--output-file", LOCKS["run"]],
        ["--group", "pyproject.toml:build", *same, "--output-file", BUILD_LOCK],
        ["--group", "pyproject.toml:java", "--output-file", java],
        [*job, *lowest, "--output-file", "tests/lowest.lock"],
        [*mermaid, "--output-file", MERMAID_LOCK],
        [f"{quix}.in", "--output-file", f"{quix}.lock"],
    ]


def _packages_folder(python: Path) -> Path:
    code = 'import sysconfig; print(sysconfig.get_path("purelib"))'
    done = subprocess.run([python, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    return Path(done.stdout.strip())


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", help="interpreter of .venv; default: the first that fits")
    parser.add_argument("--look", action="store_true", help="whether Java and jars are still there")
    parts = parser.add_subparsers(dest="purpose", required=True, metavar="PURPOSE")
    for name in ("run", "develop", "docs", "lowest", "lock"):
        parts.add_parser(name)
    parts.add_parser("spark").add_argument("version", choices=SPARKS)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """The command; its exit status."""
    asked = parse(arguments)
    environment = Environment(asked.python)
    deeds: dict[str, Callable[[], None]] = {
        "run": lambda: environment.for_running(look=asked.look),
        "develop": lambda: environment.for_development(look=asked.look),
        "docs": environment.with_mermaid,
        "spark": lambda: environment.with_other(
            f"spark-{asked.version}", f"tests/spark/pyspark-{asked.version}.lock"
        ),
        "lowest": lambda: environment.with_other("lowest", "tests/lowest.lock"),
        "lock": environment.write_locks,
    }
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    with (build / "set-up.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # One at a time: another `make` waits.
        try:
            deeds[asked.purpose]()
        except SetUpError as reason:
            print(f"setup: {reason}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
