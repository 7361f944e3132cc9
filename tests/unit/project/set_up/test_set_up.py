"""Set-up: what it installs for which purpose, when it does a step again, and how it fails.

The program is the real one in a folder of its own; Python, pip, uv and hatchling are a script that
writes down how it is called. `make run` and `make test` show it with the real ones.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from support.project import set_up

ROOT: Final = Path(__file__).parents[4]
PROGRAM: Final = Path("tests/support/project/set_up.py")
UV: Final = "pip install --require-hashes --no-deps --requirement .venv/uv.lock"
JAVA: Final = "spu_assigner.stream.setup --no-archive --stamp .venv/java.stamp"
WITH_ARCHIVE: Final = JAVA.replace("--no-archive ", "")

# Stands for Python, pip, hatchling and uv: makes what they would, and fails where a test says so.
_SCRIPT: Final = """\
#!/bin/sh
command=$(echo "$*" | sed "s|$PLACE/||g; s/ --disable-pip-version-check --no-input//; s/^-m //")
case "$command" in
  "-c import sysconfig"*) echo "$PLACE/$(dirname "$0" | sed "s|$PLACE/||")/packages"; exit 0 ;;
  "-c "*) exit "${UNFIT:-0}" ;;
  "pip config list") echo "$PIP_LISTED"; exit 0 ;;
esac
echo "$(basename "$0") $command" | sed "s/^python3* //" >> "$PLACE/calls"
echo "$UV_DEFAULT_INDEX" >> "$PLACE/indexes"
[ -z "$FAILING" ] || case "$(basename "$0") $command" in
  $FAILING) echo "no: $command"; exit 1 ;;
esac
for last; do :; done
case "$command" in
  "venv "*) rm -rf "$last"; mkdir -p "$last/bin/packages"; cp "$0" "$last/bin/python" ;;
  "pip install"*uv.lock) cp "$0" "$(dirname "$0")/uv" ;;
  "hatchling build"*) mkdir -p "$last"; touch "$last/product.whl" ;;
  *"--stamp "*) [ -n "$INCOMPLETE" ] || touch "$last" ;;
esac
"""


class Checkout:
    """A folder with what set-up reads of a checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in (
            "requirements-build.lock", "docker/requirements.lock", "tests/lowest.lock",
            "pyproject.toml", "README.md", "LICENSE", "core/a.py", "schemas/a.avsc", "stream/a.py",
        ):  # fmt: skip
            self.write(name, "1")
        self.write("requirements.lock", "a==1 \\\n    --hash=sha256:0\nuv==2 \\\n    --hash=1\n")
        (folder / PROGRAM).parent.mkdir(parents=True)
        shutil.copy(ROOT / PROGRAM, folder / PROGRAM)
        self.write("python3", _SCRIPT)
        (folder / "python3").chmod(0o755)

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.folder}{os.pathsep}/usr/bin{os.pathsep}/bin"
        return subprocess.run(
            [sys.executable, str(self.folder / PROGRAM), *arguments],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": path, "PLACE": str(self.folder), **environ},
        )

    def calls(self, *arguments: str, **environ: str) -> list[str]:
        """What a set-up that ends well calls."""
        done = self.run(*arguments, **environ)
        assert (done.returncode, done.stderr) == (0, "")
        return self.called()

    def called(self) -> list[str]:
        """What was called since the last look."""
        file = self.folder / "calls"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return lines


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def uv(lock: str) -> str:
    spark = "--config-settings-package pyspark:--build-option=--compression=stored"
    options = f"--python .venv/bin/python {spark} --require-hashes --no-build-isolation"
    return f"uv pip install --system-certs {options} --requirement {lock}"


WHEEL: Final = [
    "hatchling build --directory dist",
    "pip install --quiet --no-index --no-deps --force-reinstall dist/product.whl",
]


def test_to_run_the_locked_requirements_of_the_job_are_installed_and_no_others(
    checkout: Checkout,
) -> None:
    """No linter, browser or test comes with `make run`."""
    assert checkout.calls("run") == [
        "venv --clear .venv",
        UV,
        uv("requirements-build.lock"),
        uv("docker/requirements.lock"),
        *WHEEL,
        JAVA,
    ]


def test_to_develop_the_rest_is_added(checkout: Checkout) -> None:
    """After `make run`, `make test` makes neither environment nor wheel again."""
    checkout.calls("run")
    locks = ("requirements-build.lock", "requirements.lock")
    assert checkout.calls("develop") == [UV, *map(uv, locks), WITH_ARCHIVE]
    assert checkout.calls("run") == []  # It has that already.
    view = checkout.folder / "build/types/spu_assigner/core/a.py"
    assert view.read_text(encoding="utf-8") == "1"


@pytest.mark.parametrize("purpose", ["run", "develop"])
def test_what_is_done_is_not_done_again(checkout: Checkout, purpose: str) -> None:
    """Each command asks for set-up; it must cost nothing."""
    checkout.calls(purpose)
    done = checkout.run(purpose)
    assert (done.returncode, done.stdout, checkout.called()) == (0, "", [])


def test_a_changed_source_makes_the_wheel_again(checkout: Checkout) -> None:
    """A new, changed or removed file of the product; what Python compiles is none."""
    checkout.calls("run")
    checkout.write("core/__pycache__/a.pyc", "2")
    checkout.write("tests/a.py", "2")
    assert checkout.calls("run") == []
    for change in (
        lambda: checkout.write("core/a.py", "2"),
        lambda: checkout.write("core/base/b.py", "2"),
        (checkout.folder / "core/base/b.py").unlink,
        lambda: checkout.write("README.md", "2"),
    ):
        change()
        assert checkout.calls("run") == [*WHEEL, JAVA]


def test_a_changed_lock_installs_its_packages_again(checkout: Checkout) -> None:
    """By content: a checkout of an old commit sets times that are newer."""
    checkout.calls("run")
    os.utime(checkout.folder / "docker/requirements.lock")
    assert checkout.calls("run") == []
    checkout.write("docker/requirements.lock", "2")
    assert uv("docker/requirements.lock") in checkout.calls("run")


def test_an_interpreter_that_went_makes_the_environment_again(checkout: Checkout) -> None:
    """As an upgrade of the system's Python leaves it."""
    checkout.calls("run")
    python = checkout.folder / ".venv/bin/python"
    python.unlink()
    python.symlink_to("/nowhere/python3")
    assert checkout.calls("run")[0] == "venv --clear .venv"


@pytest.mark.parametrize(
    "failing", ["*install*docker/requirements.lock", "python hatchling*", "python *--stamp*"]
)
def test_a_step_that_failed_is_done_again(checkout: Checkout, failing: str) -> None:
    """What ended well before it is not."""
    done = checkout.run("run", FAILING=failing)
    assert done.returncode == 1
    assert done.stderr.startswith("setup: ")
    first = checkout.called()
    again = checkout.calls("run")
    assert first[0] == "venv --clear .venv"
    assert again[0] != first[0]
    assert again[-1] == JAVA
    assert checkout.calls("run") == []


def test_pip_installs_where_uv_cannot(checkout: Checkout) -> None:
    """A registry may need settings that uv does not get here."""
    done = checkout.run("run", FAILING="uv *")
    assert done.returncode == 0
    assert "uv could not" in done.stdout
    options = "--require-hashes --no-build-isolation --requirement"
    assert f"pip install {options} docker/requirements.lock" in checkout.called()


def test_java_is_tried_again_while_something_is_missing(checkout: Checkout) -> None:
    """Without the archive of Spark's classes the job works, and starts more slowly."""
    assert checkout.calls("run", INCOMPLETE="1")[-1] == JAVA
    assert checkout.calls("run") == [JAVA]
    assert checkout.calls("run") == []


@pytest.mark.parametrize(
    ("listed", "user", "expected"),
    [
        ("", "", ""),
        ("global.index-url='https://a'\n:env:.index-url='https://b'", "", "https://b"),
        ("global.index-url='https://a'", "https://user", "https://user"),
        ("global.extra-index-url='https://a'", "", ""),
    ],
)
def test_uv_is_told_where_pip_finds_packages(
    checkout: Checkout, listed: str, user: str, expected: str
) -> None:
    """It does not read pip's settings; what the user sets for uv comes first."""
    environ = {"UV_DEFAULT_INDEX": user} if user else {}
    checkout.calls("run", PIP_LISTED=listed, **environ)
    indexes = (checkout.folder / "indexes").read_text(encoding="utf-8").splitlines()
    assert indexes[2:4] == [expected, expected]


def test_an_interpreter_that_does_not_fit_is_named(checkout: Checkout) -> None:
    """With what fits and how to say it."""
    done = checkout.run("--python", str(checkout.folder / "python3"), "run", UNFIT="1")
    assert done.returncode == 1
    assert done.stderr == (
        f"setup: {checkout.folder}/python3 is not Python 3.11 or later with venv and ensurepip; "
        "install one, or name it: make setup PYTHON=/path/python3\n"
    )
    assert checkout.called() == []


def test_an_environment_of_other_versions_finds_all_else_in_the_first(checkout: Checkout) -> None:
    """It is made when its lock changes; a source that changed only lets Java be looked at."""
    *_, make, install, bring = checkout.calls("lowest")
    assert make == "venv --clear --without-pip build/lowest"
    assert install.endswith("--target build/lowest/bin/packages --requirement tests/lowest.lock")
    assert bring == "spu_assigner.stream.setup --stamp build/lowest/java.stamp"
    path = (checkout.folder / "build/lowest/bin/packages/venv.pth").read_text(encoding="utf-8")
    assert path == f"import site; site.addsitedir('{checkout.folder}/.venv/bin/packages')\n"
    checkout.write("core/a.py", "2")
    assert checkout.calls("lowest") == [*WHEEL, WITH_ARCHIVE, bring]
    checkout.write("tests/lowest.lock", "2")
    assert checkout.calls("lowest") == [make, install, bring]


def test_each_lock_is_written_by_make_lock() -> None:
    """A lock that nothing writes gets old."""
    listed = subprocess.run(
        ["git", "ls-files", "*.lock"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    written = [call[call.index("--output-file") + 1] for call in set_up.lock_calls()]
    written += [f"tests/spark/pyspark-{spark}.lock" for spark in set_up.SPARKS]
    assert sorted(written) == sorted(listed)
