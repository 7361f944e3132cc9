"""`spu-assigner simulate` is a contract: names, order, exit status, and no Spark."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from spu_assigner.core import Event, Policy
from spu_assigner.schemas.json_lines.lines import event_to_json
from spu_assigner.stream.cli import cli
from spu_assigner.stream.client.simulate import answer_lines
from spu_assigner.stream.common import json_line_reading
from support.events.builders import Events

COMMAND = [sys.executable, "-m", "spu_assigner.stream.cli", "simulate"]


def lines_of(events: Sequence[Event]) -> bytes:
    return "".join(f"{event_to_json(event)}\n" for event in events).encode()


def simulated(given: bytes, policy: Policy = Policy.FLUVIO) -> tuple[int, list[dict[str, Any]]]:
    """Exit status and answers, in this process."""
    target = io.BytesIO()
    status = answer_lines(io.BytesIO(given), target, policy)
    return status, [json.loads(line) for line in target.getvalue().splitlines()]


def test_the_answers_have_the_contracts_keys_in_the_contracts_order() -> None:
    """Programs read these lines."""
    joined = b'{"type":"spu_joined","event_id":"e1","cluster_id":"c1","spu_id":0,"capacity":1}\n'
    create = b'{"type":"topic_create","event_id":"e2","cluster_id":"c1","topic":"t"}\n'
    target = io.BytesIO()
    assert answer_lines(io.BytesIO(joined + create + b"{}\n"), target, Policy.FLUVIO) == 1
    assert target.getvalue().decode().splitlines()[:4] == [
        '{"type":"ring_event","cluster_id":"c1","spu_id":0,"change":"joined","code":null,"ring_size":1,"cause":"e1"}',
        '{"type":"replica_map","cluster_id":"c1","topic":"t","revision":1,"policy":"fluvio",'
        '"replicas":[[0]],"cores":null,"chain_index":0,"cause":"e2"}',
        '{"type":"topic_status","cluster_id":"c1","topic":"t","status":"assigned","code":null,'
        '"message":null,"replicas":null,"cause":"e2"}',
        '{"type":"ring_event","cluster_id":"c1","spu_id":0,"change":"saturated","code":null,"ring_size":0,"cause":"e2"}',
    ]
    assert list(json.loads(target.getvalue().splitlines()[4])) == [
        "type",
        "line",
        "code",
        "message",
        "raw",
    ]


def test_a_bad_line_is_a_dead_letter_and_the_rest_goes_on() -> None:
    """One bad line in a long file must not cost the others their answers."""
    events = Events()
    good = [lines_of([event]) for event in events.joins(0, 1)]
    bad = b"\n \nnothing\n" + b"\xff\xfe\r\n"  # blank lines count and give no answer
    status, answers = simulated(good[0] + bad + good[1].rstrip(b"\n"))
    assert status == 1
    assert [(answer["type"], answer.get("line"), answer.get("raw")) for answer in answers] == [
        ("ring_event", None, None),
        ("dead_letter", 4, "nothing"),
        ("dead_letter", 5, "\ufffd\ufffd"),
        ("ring_event", None, None),
    ]
    assert {answer["code"] for answer in answers if answer["type"] == "dead_letter"} == {
        "BAD_EVENT"
    }


def test_a_refusal_is_an_answer_and_no_error() -> None:
    """Scripts see by the status whether every line was an event."""
    status, answers = simulated(lines_of([Events().create("t", 1, 1)]))
    assert (status, answers[0]["code"]) == (0, "INSUFFICIENT_SPUS")


def test_an_endless_line_is_a_dead_letter_of_bounded_size() -> None:
    """It is not kept whole in memory, nor is it printed whole."""
    status, answers = simulated(b"x" * (9 * 1024 * 1024) + b"\n" + lines_of(Events().joins(0)))
    assert status == 1
    assert [answer["type"] for answer in answers] == ["dead_letter", "ring_event"]
    assert len(answers[0]["raw"]) == 64 * 1024
    assert "longer than 8388608 bytes" in answers[0]["message"]


def test_what_is_too_long_is_cut_and_the_next_line_is_found() -> None:
    lines = [b"", b"a", b"bcdef", b"", b"ghijkl", b"m" * 20, b"n" * 12, b"o"]
    found = json_line_reading.lines_of(io.BytesIO(b"\n".join(lines)), size_max=5)
    assert list(found) == [line[:6] for line in lines]


def test_an_answer_comes_before_the_next_line_is_there() -> None:
    """Another program may hold the pipe open and wait for each answer."""
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for spu_id, event in enumerate(Events().joins(0, 1)):
            process.stdin.write(lines_of([event]))
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["spu_id"] == spu_id
        process.stdin.close()
        assert process.wait(timeout=30) == 0


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    """`spu-assigner simulate FILE | head` is an everyday thing."""
    file = tmp_path / "events.jsonl"
    file.write_bytes(lines_of([Events().leave(0) for _ in range(5_000)]))
    with subprocess.Popen(
        [*COMMAND, str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=30) == 1


@pytest.mark.parametrize(
    "arguments", [["/no/file"], ["/"], ["--policy", "best"], ["--policy", "manual"]]
)
def test_a_missing_file_and_an_unknown_policy_are_wrong_usage(arguments: list[str]) -> None:
    """Status 2, one line, no stack trace."""
    result = CliRunner().invoke(cli, ["simulate", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("spu-assigner simulate: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("options", [[], ["--check"]])
def test_it_loads_neither_spark_nor_avro_nor_kafka(options: list[str]) -> None:
    """It starts in a fraction of a second, and where none of them is installed."""
    code = (
        "import sys, runpy\n"
        f"sys.argv = ['spu-assigner', 'simulate', *{options}, '-']\n"
        "try:\n"
        "    runpy.run_module('spu_assigner.stream.cli', run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    assert end.code == 0, end.code\n"
        "heavy = {'pyspark', 'pandas', 'pyarrow', 'fastavro', 'confluent_kafka', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    given = lines_of(Events().joins(0, 1))
    done = subprocess.run(
        [sys.executable, "-c", code], input=given, capture_output=True, check=True
    )
    assert done.stdout.splitlines()[-1] == b"[]"


def test_the_output_is_the_same_bytes_each_time() -> None:
    """Law 3: no clock, no random, no hash order."""
    events = Events()
    joins = events.racks({"a": [0, 1], "b": [2, 3], "c": [4]}, capacity=5)
    given = lines_of([*joins, *(events.create(f"t{n}", 3, 3) for n in range(3))])
    outputs = {
        subprocess.run(
            COMMAND,
            input=given,
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
