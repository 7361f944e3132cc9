"""Distributions made of this checkout, and empty environments in which they are installed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
LOCK: Final = ROOT / "requirements.lock"
_UV: Final = Path(sys.executable).with_name("uv")


def run(command: list[str | Path], *, folder: Path, seconds: float = 300.0) -> str:
    """What a program prints; its errors are in the failure."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stderr}"
    return done.stdout


def build(target: str, source: Path, folder: Path) -> Path:
    """The wheel or the source archive (`sdist`) that the build backend makes of a folder."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target]
    run([*command, "--directory", str(folder)], folder=source)
    (made,) = folder.iterdir()
    return made


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python environment of its own, in which nothing is but what was asked for."""

    folder: Path

    @classmethod
    def create(cls, folder: Path, requirement: str) -> Environment:
        """Install one requirement and what it needs, at the locked versions.

        Packages come from what set-up has left in uv's cache; only what is missing is fetched.
        """
        run([_UV, "venv", "--quiet", "--python", sys.executable, folder], folder=ROOT)
        made = cls(folder)
        install: list[str | Path] = [_UV, "pip", "install", "--quiet", "--system-certs"]
        install += ["--link-mode", "hardlink", "--python", made.program("python")]
        install += ["--constraint", LOCK, requirement]
        try:
            run([*install, "--offline"], folder=ROOT)
        except AssertionError:
            run(install, folder=ROOT)
        return made

    def program(self, name: str) -> Path:
        return self.folder / "bin" / name

    def call(
        self, program: str, *arguments: str, folder: Path, seconds: float = 300.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of it elsewhere than in the checkout, with no path to other packages."""
        return subprocess.run(
            [self.program(program), *arguments],
            cwd=folder,
            env=self._environ(),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def begin(
        self, program: str, *arguments: str, folder: Path, cache: Path
    ) -> subprocess.Popen[str]:
        """The same, without waiting for its end; what it prints can be read."""
        return subprocess.Popen(
            [self.program(program), *arguments],
            cwd=folder,
            env={**self._environ(), "SPU_ASSIGNER_CACHE": str(cache)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def _environ(self) -> dict[str, str]:
        others = {"PYTHONPATH", "VIRTUAL_ENV", "PYSPARK_PYTHON", "KAFKA_BOOTSTRAP_SERVERS"}
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in others and not name.startswith("SPU_")
        }
        path = f"{self.folder / 'bin'}{os.pathsep}{kept['PATH']}"
        return {**kept, "PATH": path, "PYSPARK_PYTHON": str(self.program("python"))}
