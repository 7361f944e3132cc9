"""The command line: help, exit statuses, and errors of one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.cli import Commands, cli
from spu_assigner.stream.client.assignment_file import AssignmentFileError, read_assignment
from spu_assigner.stream.kafka.config.settings import SettingsError

ROOT = Path(__file__).parents[4]
CREATE = ["produce", "topic-create", "--cluster", "c1", "--topic", "t"]
SCREEN_LINES = 48
JOIN = ["produce", "spu-joined", "--cluster", "c1", "--spu-id", "0"]


def call(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(cli, arguments, env=environ)


def paths(command: click.Command, *path: str) -> list[tuple[str, ...]]:
    """Every command, with its groups."""
    found = [path]
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            inner = command.get_command(ctx, name)
            assert inner is not None
            found += paths(inner, *path, name)
    return found


def one_line(result: Result) -> str:
    """The only line on standard error; nothing else was said."""
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    return line


@pytest.mark.parametrize("path", paths(cli), ids=" ".join)
def test_every_command_explains_itself(path: tuple[str, ...]) -> None:
    """`--help` is the first thing that is tried, on any of them."""
    result = call(*path, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: {' '.join(('spu-assigner', *path))}")
    assert max(map(len, result.stdout.splitlines())) <= 100


@pytest.mark.parametrize("path", paths(cli), ids=" ".join)
def test_the_help_of_a_command_fits_a_screen(path: tuple[str, ...]) -> None:
    """What one needs to call it; the documentation has the rest."""
    done = CliRunner().invoke(cli, [*path, "--help"], terminal_width=100)
    assert len(done.stdout.splitlines()) <= SCREEN_LINES


def test_every_command_of_the_contract_is_there() -> None:
    """Scripts call them by these names."""
    assert {" ".join(path) for path in paths(cli)} >= {
        "run",
        "simulate",
        "watch",
        "topics create",
        "topics check",
        "broker start",
        "explain",
        "inspect",
        "verify",
        "completion",
        "produce events",
        "produce spu-joined",
        "produce spu-left",
        "produce topic-constraints",
        "produce topic-create",
        "produce topic-delete",
        "produce topic-demand",
        "produce topic-grow",
        "produce topic-release",
        "produce cluster-rebalance",
    }


def test_help_imports_no_command() -> None:
    """Help and completion are asked for often, and must not wait for Spark."""
    code = (
        "import sys; from spu_assigner.stream.cli import cli\n"
        "try: cli(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'spu_assigner.stream.job.run.command', 'numpy', 'confluent_kafka'}\n"
        "print(sorted(set(sys.modules) & heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_each_commands_help_is_light() -> None:
    """A command's module declares; what is heavy is imported when it runs."""
    code = (
        "import sys; from spu_assigner.stream.cli import cli\n"
        "for name in cli.list_commands(None):\n"
        "    try: cli([name, '--help'])\n"
        "    except SystemExit: pass\n"
        "heavy = {'pyspark', 'confluent_kafka', 'fastavro', 'rich', 'pandas', 'pyarrow'}\n"
        "print(sorted(set(sys.modules) & heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "No such command 'nothing'"),
        (["plann", "--cluster", "c1"], "Did you mean one of: 'explain', 'plan'?"),
        (["drian", "4"], "Did you mean 'drain'?"),
        (
            ["drain", "4", "--cluster"],
            "'--cluster' requires an argument (see spu-assigner drain --help)",
        ),
        (["--nothing"], "No such option '--nothing'"),
        (["watch", "-b"], "Option '-b' requires an argument"),
        (["simulate", "-b", "k:1", "-"], "No such option '-b'"),
        (["produce", "nothing"], "No such command 'nothing'"),
        (["produce", "spu-joined", "--spu-id", "0"], "Missing option '--cluster'"),
        ([*CREATE, "--partitions", "many"], "'many' is not a valid integer"),
        ([*CREATE, "--policy", "best"], "'best' is not one of"),
        ([*CREATE, "--cluster", "c 1"], "cluster_id is 'c 1'; expected 1 to 249 of"),
        ([*CREATE, "--topic", ".."], "topic is '..'; expected 1 to 249 of"),
        ([*CREATE, "--event-id", ""], "event_id is ''; expected 1 to 256 characters"),
        ([*CREATE, "--wait", "0"], "0.0 is not in the range"),
        ([*CREATE, "--output", "xml"], "'xml' is not one of 'table', 'json'"),
        (
            ["produce", "spu-joined", "--cluster", "c", "--spu-id", "0", "--label", "x"],
            "NAME=VALUE",
        ),
        (["produce", "events", "/nothing/there"], "cannot read '/nothing/there'"),
        (["watch", "--topics", "maps,all"], "'all' is none of maps, status, ring, dead-letters"),
        (["watch", "-b", "nowhere"], "--bootstrap-servers is 'nowhere'; expected host:port"),
        (["topics", "create", "--partitions", "0"], "0 is not in the range"),
        (["completion", "tcsh"], "'tcsh' is not one of 'bash', 'zsh', 'fish'"),
        (["run", "--shards", "0"], "--shards is '0'; expected 1 to 1000"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(arguments: list[str], said: str) -> None:
    """It says what was found and what was expected."""
    result = call(*arguments)
    assert result.exit_code == 2
    assert said in one_line(result)


def test_no_command_shows_the_help_and_is_wrong_usage() -> None:
    """A script that forgot the command must not seem to succeed."""
    for arguments in ([], ["produce"]):
        result = call(*arguments)
        assert result.exit_code == 2
        assert "Commands:" in result.stderr


def raising(error: BaseException) -> Commands:
    @click.command()
    def fail() -> None:
        raise error

    class One(Commands):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
            return fail

    return One()


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (AssignerError("no\n  luck"), 1, "spu-assigner: no luck\n"),
        (
            SettingsError("X", found="'y'", expected="z"),
            2,
            "spu-assigner: X is 'y'; expected z\n",
        ),
        (KeyboardInterrupt(), 130, "\n"),
    ],
    ids=["error", "settings", "Ctrl-C"],
)
def test_errors_have_their_own_status(error: BaseException, status: int, said: str) -> None:
    """One clear line, no stack trace."""
    result = CliRunner().invoke(raising(error), ["fail"])
    assert (result.exit_code, result.stdout, result.stderr) == (status, "", said)


def test_a_defect_of_ours_is_not_hidden() -> None:
    """A stack trace is what a report of it needs."""
    result = CliRunner().invoke(raising(ZeroDivisionError()), ["fail"])
    assert isinstance(result.exception, ZeroDivisionError)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_the_shell(shell: str) -> None:
    """Loaded with eval or source, so nothing else may be printed."""
    result = call("completion", shell)
    assert result.exit_code == 0
    assert "_SPU_ASSIGNER_COMPLETE" in result.stdout


@pytest.mark.parametrize(
    ("words", "count", "completed"),
    [
        (
            "spu-assigner produce topic-",
            2,
            [
                "topic-adopted",
                "topic-constraints",
                "topic-create",
                "topic-delete",
                "topic-demand",
                "topic-grow",
                "topic-release",
                "topic-replication",
            ],
        ),
        ("spu-assigner wh", 1, ["whatif"]),
        ("spu-assigner simu", 1, ["simulate"]),
        ("spu-assigner simulate --ch", 2, ["--check"]),
        ("spu-assigner topics check --topic-p", 3, ["--topic-prefix"]),
    ],
)
def test_the_completion_completes(words: str, count: int, completed: list[str]) -> None:
    """The script asks the program itself, through this variable."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from spu_assigner.stream.cli import cli; cli(prog_name='spu-assigner')",
        ],
        env={
            **os.environ,
            "_SPU_ASSIGNER_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(count),
        },
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout.split() == [f"plain,{word}" for word in completed]


def test_the_version_is_printed() -> None:
    """A report of a defect begins with it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert call("--version").stdout == f"spu-assigner {project['version']}\n"


@pytest.mark.parametrize(
    "text",
    ['[{"id": 0, "replicas": [0, 1]}]', '{"partitions": [{"id": 0, "replicas": [0, 1]}]}'],
    ids=["list", "object"],
)
def test_both_forms_of_a_replica_assignment_are_read(tmp_path: Path, text: str) -> None:
    """Document 000 shows a list, document 002 an object."""
    file = tmp_path / "assignment.json"
    file.write_text(text, encoding="utf-8")
    assert read_assignment(file) == json.loads(text)


def test_faulty_lists_are_left_for_the_core_to_judge(tmp_path: Path) -> None:
    """One place names the first fault, for files and for inline lists alike."""
    file = tmp_path / "assignment.json"
    file.write_text('[{"id": 7, "replicas": []}]', encoding="utf-8")
    assert read_assignment(file) == [{"id": 7, "replicas": []}]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is no JSON at line 1, column 1"),
        (b"[1,\n2", "is no JSON at line 2"),
        (b"\xff", "is no UTF-8 at byte 0"),
        (b"\xef\xbb\xbf[\xba", "is no UTF-8 at byte 4"),
        (b"\xef\xbb", "is no UTF-8 at byte 0"),
        (b"7", "is neither form"),
        (b"{}", "is neither form"),
        (b'{"partitions": 7}', "is neither form"),
        (b'{"partitions": [], "topic": "t"}', "is neither form"),
        (b'[{"id": 0, "id": 1}]', 'field "id" is given more than once'),
        (b"[NaN]", "found NaN"),
        (b"[" + b"9" * 5000 + b"]", "cannot be read"),
        (b"[" * 200_000, "is nested too deeply"),
        (b" " * (8 * 1024 * 1024 + 1), "has more than 8388608 bytes"),
    ],
    ids=range(14),
)
def test_a_file_that_is_no_replica_assignment_is_refused(
    tmp_path: Path, data: bytes, said: str
) -> None:
    """Before anything is sent, with the file's name and what is wrong."""
    file = tmp_path / "assignment.json"
    file.write_bytes(data)
    with pytest.raises(AssignmentFileError) as refusal:
        read_assignment(file)
    assert said in str(refusal.value)
    assert str(file) in str(refusal.value)


def test_only_a_regular_file_is_read(tmp_path: Path) -> None:
    """A pipe would be waited for, and a device never ends."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero"), tmp_path):
        with pytest.raises(AssignmentFileError, match=r"is not a regular file|cannot be read"):
            read_assignment(path)
    result = call(*CREATE, "--replica-assignment", str(tmp_path / "missing"))
    assert result.exit_code == 2
    assert "cannot be read: No such file or directory" in one_line(result)
