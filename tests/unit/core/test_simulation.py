"""The laws, held for the real core in random lives of clusters, from seeds.

`make seeds` runs 100,000 of them, in CI too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest
from spu_assigner.core.decision.machine import step
from spu_assigner.core.state import memory
from spu_assigner.core.state.cluster_state import ClusterState
from support.events import simulation
from support.events.one_cluster import picture
from support.events.random_lives import CLUSTER, life_of
from support.model import oracle as oracle_module
from support.project.case_share import share_of

SEEDS: Final = share_of(2_000)  # what two cores live in a few seconds
MODELLED_SEEDS: Final = share_of(2_000)
LAW_SEEDS: Final = share_of(200)


@pytest.mark.thorough
def test_what_must_hold_holds_in_every_life() -> None:
    for _, fault in simulation.faults(0, SEEDS, processes=min(2, os.cpu_count() or 1)):
        assert fault is None, simulation.report_of(fault[0])


def test_seeded_lives_equal_the_plain_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes step by step with integer indexes and was written apart from the core; in some lives
    both forget events soon, so that late copies come."""
    for seed in range(MODELLED_SEEDS):
        life = life_of(seed, modelled=True)
        monkeypatch.setattr(memory, "EVENT_IDS_REMEMBERED", life.memory)
        monkeypatch.setattr(oracle_module, "REMEMBERED", life.memory)
        assert simulation.difference(life.events, life.default_policy) is None, seed


def test_a_repeated_event_changes_and_emits_nothing() -> None:
    """Law 2: a source may deliver twice. Nothing is remembered of a cluster of which nothing is
    left: there the repeated event changes nothing, and may be answered again."""
    for seed in range(LAW_SEEDS):
        life, state = life_of(seed), ClusterState(CLUSTER)
        for event in life.events:
            step(state, event, default_policy=life.default_policy)
            before, is_empty = picture(state), state.is_empty
            assert step(state, event, default_policy=life.default_policy) == () or is_empty
            assert picture(state) == before


@pytest.mark.thorough
def test_the_same_seeds_give_the_same_bytes_in_another_process() -> None:
    """Where strings hash differently, so that any walk over a set would show."""
    command = [sys.executable, simulation.__file__, "--seeds", "150", "--digest"]
    found = {
        subprocess.run(
            command,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(found) == 1
