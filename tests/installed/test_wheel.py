"""What users install: the wheel and the source archive, alone in environments of their own."""

from __future__ import annotations

import os
import shlex
import signal
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from spu_assigner.stream.cli import _COMMANDS
from spu_assigner.stream.local.jvm.build_cache import cache_home
from support.project.environments import ROOT, Environment, build, run

PARTS = ("core", "schemas", "stream")
# What each command is called with, so that it gets to its work; none: it works without the extra.
CALLS = {
    "simulate": None,
    "completion": None,
    "produce": ["spu-joined", "--cluster", "c1", "--spu-id", "1"],
    "explain": ["c1", "orders"],
    "recover": ["--checkpoint", "new"],
    "topics": ["check"],
    "schemas": None,  # `check` and `publish` ask a Schema Registry alone
    "broker": None,  # Java alone
    "follow": ["--cluster", "c1"],
    "adopt": ["--cluster", "c1"],
    "plan": ["--cluster", "c1"],
    "apply": ["plan.json"],
    "drain": ["1", "--cluster", "c1"],
    "rebalance": ["--cluster", "c1"],
    "whatif": ["--cluster", "c1", "--fail", "spu=1"],
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The package without its extra."""
    return Environment.create(tmp_path_factory.mktemp("bare") / "env", str(wheel))


@pytest.fixture(scope="module")
def whole(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The package with the extra `job`."""
    return Environment.create(tmp_path_factory.mktemp("whole") / "env", f"{wheel}[job]")


def _files(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.smoke
def test_the_wheel_holds_each_file_of_the_product_and_no_other(wheel: Path) -> None:
    """A package that is forgotten cannot be imported; a stray one is imported as `core`."""
    tracked = run(["git", "ls-files", "--", *PARTS], folder=ROOT).split()
    packed = {name for name in _files(wheel) if ".dist-info/" not in name}
    assert packed == {f"spu_assigner/{name}" for name in tracked if (ROOT / name).exists()}


@pytest.mark.smoke
def test_the_source_archive_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """It is what is built where no wheel fits."""
    with tarfile.open(build("sdist", ROOT, tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.glob("spu_assigner-*")
    assert _files(build("wheel", unpacked, tmp_path / "wheel")) == _files(wheel)


@pytest.mark.smoke
def test_the_metadata_are_valid_and_requirements_are_ranges(wheel: Path) -> None:
    """An exact version would fight with every other package of an environment."""
    (text,) = (data for name, data in _files(wheel).items() if name.endswith("/METADATA"))
    facts = Metadata.from_email(text, validate=True)
    assert facts.provides_extra == ["job"]
    assert facts.requires_dist
    for requirement in facts.requires_dist:
        assert {each.operator for each in requirement.specifier} == {">=", "<"}, requirement


@pytest.mark.smoke
def test_without_the_extra_the_core_needs_numpy_and_msgspec_alone(
    bare: Environment, tmp_path: Path
) -> None:
    """An application that embeds it gets no Kafka and no Spark with it, and starts at once."""
    code = (
        "import sys; before = set(sys.modules); import spu_assigner.core; "
        "from spu_assigner.core import *; "
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before} "
        "- set(sys.stdlib_module_names))"
    )
    done = bare.call("python", "-c", code, folder=tmp_path)
    assert set(done.stdout.split()) <= {"numpy", "msgspec", "spu_assigner"}, done.stderr
    done = bare.call("spu-assigner", "--version", folder=tmp_path)
    assert done.stdout.startswith("spu-assigner "), done.stderr


@pytest.mark.smoke
def test_without_the_extra_simulate_answers(bare: Environment, tmp_path: Path) -> None:
    """It needs neither Kafka nor Spark."""
    events = tmp_path / "events.jsonl"
    events.write_text(
        '{"type":"spu_joined","event_id":"e1","cluster_id":"c1","spu_id":0}\n'
        '{"type":"topic_create","event_id":"e2","cluster_id":"c1","topic":"t",'
        '"partitions":1,"replication_factor":1}\n'
    )
    done = bare.call("spu-assigner", "simulate", str(events), folder=tmp_path)
    assert '"replicas":[[0]]' in done.stdout, done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize("command", sorted(_COMMANDS))
def test_a_command_whose_part_is_missing_says_what_to_install(
    bare: Environment, tmp_path: Path, command: str
) -> None:
    """One line instead of a traceback."""
    if (arguments := CALLS.get(command, [])) is None:
        assert bare.call("spu-assigner", command, "--help", folder=tmp_path).returncode == 0
        return
    (tmp_path / "plan.json").write_text("{}")
    done = bare.call("spu-assigner", command, *arguments, folder=tmp_path)
    expected = "spu-assigner: this needs spu-assigner[job]: pip install 'spu-assigner[job]' (no "
    assert done.stderr.startswith(expected), done.stderr
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


@pytest.mark.smoke
def test_each_module_can_be_imported(whole: Environment, tmp_path: Path) -> None:
    """With nothing installed but what the package asks for."""
    code = (
        "import importlib, pkgutil, spu_assigner as own; "
        "names = [each.name for each in pkgutil.walk_packages(own.__path__, 'spu_assigner.')]; "
        "[importlib.import_module(name) for name in names]; print(len(names) > 200)"
    )
    others = "ignore::DeprecationWarning"  # of kafka-python
    done = whole.call("python", "-W", "error", "-W", others, "-c", code, folder=tmp_path)
    assert done.stdout == "True\n", done.stderr


@pytest.mark.smoke
@pytest.mark.long("a broker, Spark and the documents' scenario")
def test_the_demonstration_and_the_first_documented_commands_work_from_the_wheel(
    whole: Environment, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All 93 lists and 41 answers, far from the checkout; then what a newcomer types next.

    The first demonstration of an environment keeps an archive of Spark's classes.
    """
    cache = tmp_path_factory.mktemp("cache")  # of its own, but for what was fetched
    for name in ("jars", "broker"):
        (cache / name).symlink_to(cache_home() / name)
    page = (ROOT / "docs" / "getting-started.md").read_text(encoding="utf-8")
    _, part = page.split("In another terminal, against the same broker:\n\n```\n")
    commands = [shlex.split(line, comments=True) for line in part.split("```")[0].splitlines()]
    assert [words.pop(0) for words in commands] == [".venv/bin/spu-assigner"] * 5
    assert commands.pop() == ["ui"]  # which serves until it is ended
    command = ("spu-assigner", "run", "--demo", "--ui-port", "0")
    with whole.begin(*command, folder=tmp_path, cache=cache) as job:
        assert job.stdout is not None
        said = []
        try:
            for line in job.stdout:
                said.append(line)
                if line.startswith("Ctrl-C ends it"):
                    break
            assert "All 93 replica lists and 41 rings and answers are equal" in "".join(said)
            address = next(line.split()[-1] for line in said if "Kafka broker at" in line)
            for words in commands:
                done = whole.call("spu-assigner", *words, "-b", address, folder=tmp_path)
                assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        finally:
            os.killpg(job.pid, signal.SIGINT)
            said += job.stdout
    assert job.returncode == 130
    assert "keeps an archive of Spark's classes" in said[-1]
    assert len([*cache.glob("spark/*/classes.jsa")]) == 1
    assert list(tmp_path.iterdir()) == []  # Nothing is left behind.
