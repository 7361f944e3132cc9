"""A short run of the fuzzer in every test run, and that it finds what was planted."""

from __future__ import annotations

import gc
import platform
import random
import subprocess
import sys
from pathlib import Path

import pytest

if (sys.platform, platform.machine()) != ("linux", "x86_64"):
    pytest.skip("atheris has wheels for Linux on x86_64 alone", allow_module_level=True)

from fuzz.run import fuzz
from fuzz.targets import TARGETS

RUN = Path(__file__).parent / "run.py"
PLANTED_RUNS_MAX = 20_000  # it is found within some hundreds or thousands


@pytest.mark.smoke
@pytest.mark.parametrize("name", TARGETS)
def test_the_seeds_are_good_inputs(name: str) -> None:
    """Fuzzing starts from them: what fails here would be found at once, and hide the rest."""
    seeds = TARGETS[name].seeds()
    assert len(seeds) > 3
    for seed in seeds:
        assert len(seed) <= TARGETS[name].size_max
        TARGETS[name].one(seed)


def test_no_input_of_a_short_run_breaks_a_promise() -> None:
    """`make fuzz` gives fifty times as many."""
    command = [sys.executable, str(RUN), "--runs", "20000", "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    *_, total = done.stdout.splitlines()
    assert total == "20000 inputs, 0 crashes"


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_leaves_memory_behind(name: str) -> None:
    """Or a job that runs for months would grow with what it is sent."""
    target, draw = TARGETS[name], random.Random(1)
    seeds = target.seeds()

    def blocks_after(inputs: int) -> int:
        for _ in range(inputs):
            target.one(_mutated(draw.choice(seeds), draw))
        gc.collect()
        return sys.getallocatedblocks()

    blocks_after(2_000)  # what is made once is made, such as the reader of each version
    before = blocks_after(200)
    assert blocks_after(1_000) - before < 1_000  # less than one block each


def test_a_planted_fault_is_found() -> None:
    """A fuzzer that finds nothing may as well be looking at nothing."""
    target = TARGETS["shard_batch"]
    outcome = fuzz(target, PLANTED_RUNS_MAX, 1, plant=True)
    assert outcome.crashes == 1
    assert outcome.artifact is not None
    assert outcome.inputs < PLANTED_RUNS_MAX
    target.one(bytes.fromhex(outcome.artifact))  # without it all is well


def _mutated(seed: bytes, draw: random.Random) -> bytes:
    data = bytearray(seed)
    for _ in range(draw.randrange(8)):
        data[draw.randrange(len(data))] = draw.randrange(256)
    return bytes(data)
