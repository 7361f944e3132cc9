"""The command line: help, exit statuses, and errors of one line."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.cli import Commands, cli
from spu_assigner.stream.client.produce_options import read_assignment
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
def test_every_command_explains_itself_on_a_screen(path: tuple[str, ...]) -> None:
    """`--help` is the first thing that is tried, on any of them; the documentation has the rest."""
    result = CliRunner().invoke(cli, [*path, "--help"], terminal_width=100)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: {' '.join(('spu-assigner', *path))}")
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 100
    assert len(lines) <= SCREEN_LINES


def test_every_command_of_the_contract_is_there() -> None:
    """Scripts call them by these names. A new one is in the table of `ARCHITECTURE.md`."""
    names = (
        "run simulate watch explain inspect verify recover doctor ui adopt follow plan apply drain "
        "rebalance whatif completion topics schemas broker produce"
    )
    assert {path[0] for path in paths(cli) if path} >= {*names.split()}


def test_help_is_light() -> None:
    """It is asked for often; what is heavy is imported when a command runs."""
    code = (
        "import sys; from spu_assigner.stream.cli import cli\n"
        "def loaded(*heavy): return [name for name in heavy if name in sys.modules]\n"
        "try: cli(['--help'])\n"
        "except SystemExit: pass\n"
        "first = loaded('spu_assigner.stream.job.run.command', 'numpy', 'confluent_kafka')\n"
        "for name in cli.list_commands(None):\n"
        "    try: cli([name, '--help'])\n"
        "    except SystemExit: pass\n"
        "print(first + loaded('pyspark', 'confluent_kafka', 'fastavro', 'rich', 'pandas'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plann", "--cluster", "c1"], "Did you mean one of: 'explain', 'plan'?"),
        (["drian", "4"], "Did you mean 'drain'?"),
        (
            ["drain", "4", "--cluster"],
            "'--cluster' requires an argument (see spu-assigner drain --help)",
        ),
        (["--nothing"], "No such option '--nothing'"),
        (["simulate", "-b", "k:1", "-"], "No such option '-b'"),
        (["produce", "spu-joined", "--spu-id", "0"], "Missing option '--cluster'"),
        ([*CREATE, "--policy", "best"], "'best' is not one of"),
        ([*CREATE, "--cluster", "c 1"], "cluster_id is 'c 1'; expected 1 to 249 of"),
        ([*CREATE, "--event-id", ""], "event_id is ''; expected 1 to 256 characters"),
        ([*CREATE, "--wait", "0"], "0.0 is not in the range"),
        ([*JOIN, "--label", "x"], "'x' is not NAME=VALUE"),
        ([*JOIN, "--taint", "pool=pay"], "'pool=pay' is no taint; expected KEY=VALUE:EFFECT"),
        ([*JOIN, "--taint", "a:NoSchedule"], "the effect one of no_new"),
        ([*JOIN, "--label", "x-"], "'x-' is not NAME=VALUE"),
        (["produce", "spu-label", "--cluster", "c1", "4"], "Missing argument 'NAME=VALUE|NAME-"),
        (["produce", "spu-label", "--cluster", "c1", "4", "x"], "'x' is not NAME=VALUE"),
        (
            ["produce", "spu-label", "--cluster", "c1", "4", "kafka-cluster-"],
            "label kafka-cluster is set by `follow`",
        ),
        (["produce", "spu-taint", "--cluster", "c1", "4", "x"], "'x' is no taint"),
        (["follow", "--cluster", "c1", "--labels", "/no"], "'/no' cannot be read: No such file"),
        ([*CREATE, "--constraints", "{"], "no JSON at character 1"),
        ([*CREATE, "--constraints", "/no"], "'/no' cannot be read: No such"),
        ([*CREATE, "--constraints", '{"a":1}'], 'an unknown field "a"'),
        ([*CREATE, "--replica-assignment", "/no"], "cannot be read: No such file or directory"),
        (["produce", "events", "/nothing/there"], "cannot read '/nothing/there'"),
        (["watch", "--topics", "maps,all"], "'all' is none of maps, status, ring, dead-letters"),
        (["watch", "-b", "nowhere"], "--bootstrap-servers is 'nowhere'; expected host:port"),
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
        (SettingsError("X", found="'y'", expected="z"), 2, "spu-assigner: X is 'y'; expected z\n"),
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
    ("words", "completed"),
    [
        ("spu-assigner produce topic-d", ["topic-delete", "topic-demand"]),
        ("spu-assigner wh", ["whatif"]),
        ("spu-assigner topics check --topic-p", ["--topic-prefix"]),
    ],
)
def test_the_completion_completes(words: str, completed: list[str]) -> None:
    """The script asks the program itself, through this variable."""
    environ = {
        "_SPU_ASSIGNER_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    done = CliRunner().invoke(cli, [], env=environ, prog_name="spu-assigner")
    assert done.stdout.split() == [f"plain,{word}" for word in completed]


def test_the_version_is_printed() -> None:
    """A report of a defect begins with it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert call("--version").stdout == f"spu-assigner {project['version']}\n"


@pytest.mark.parametrize(
    "text",
    [
        '[{"id": 0, "replicas": [0, 1]}]',
        '{"partitions": [{"id": 0, "replicas": [0, 1]}]}',
        '[{"id": 7, "replicas": []}]',  # The core names the first fault, for inline lists alike.
    ],
)
def test_both_forms_of_a_replica_assignment_are_read(tmp_path: Path, text: str) -> None:
    """Document 000 shows a list, document 002 an object."""
    file = tmp_path / "assignment.json"
    file.write_text(text, encoding="utf-8")
    assert read_assignment(file) == json.loads(text)
