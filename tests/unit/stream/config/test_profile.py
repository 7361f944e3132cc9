"""Profiles: what they set, and what they may not ask of a checkpoint."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from spu_assigner.stream.checkpoint.files import (
    Checkpoint,
    ProfileShardsError,
    ShardsChangedError,
    choose_shards,
)
from spu_assigner.stream.config.profile import SHARDS_AT_FIRST_MAX, TUNINGS, Profile, tuning
from spu_assigner.stream.config.settings import Settings
from spu_assigner.stream.job.source import topic_events_per_batch

NEW = Checkpoint(id=None, shards=None)


def chosen(found: int | None, *, wanted: int | None = None, profile: Profile | None = None) -> int:
    checkpoint = Checkpoint(id="x", shards=found)
    return choose_shards(checkpoint, wanted=wanted, profile=profile, place="/there")


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> int:
    monkeypatch.setattr(os, "cpu_count", lambda: request.param)
    return int(request.param)


def test_a_profile_comes_by_flag_variable_or_file(tmp_path: Path) -> None:
    """As every setting, and each has values; none named is not the same as the default named."""
    assert set(TUNINGS) == set(Profile)
    file = tmp_path / "assigner.toml"
    file.write_text('profile = "latency"\n', encoding="utf-8")
    environ = {"SPU_ASSIGNER_PROFILE": "throughput"}
    assert Settings.load(environ={}).profile is None
    assert Settings.load(environ={}, file=file).profile is Profile.LATENCY
    assert Settings.load(environ=environ, file=file).profile is Profile.THROUGHPUT
    flags = {"profile": "latency"}
    assert Settings.load(flags=flags, environ=environ).profile is Profile.LATENCY


def test_a_batch_is_as_large_as_the_profile_has_it_or_the_setting_says() -> None:
    """Large ones cost less for each event, and make whoever asks now wait longer."""

    def largest(**flags: object) -> int:
        return topic_events_per_batch(Settings.load(flags=flags, environ={}))

    assert largest() == largest(profile="throughput") == tuning(None).topic_events_per_batch
    assert largest(profile="latency") == tuning(Profile.LATENCY).topic_events_per_batch
    assert largest(profile="latency") < largest()
    assert largest(profile="latency", topic_events_per_batch=7) == 7


@pytest.mark.parametrize(
    ("cores", "profile", "shards"),
    [
        (1, None, 1),
        (4, None, 4),
        (64, None, SHARDS_AT_FIRST_MAX),
        (4, Profile.LATENCY, 1),
        (4, Profile.THROUGHPUT, 4),
        (1, Profile.THROUGHPUT, 1),
    ],
    indirect=["cores"],
)
@pytest.mark.usefixtures("cores")
def test_a_new_checkpoint_is_divided_as_the_profile_says(
    profile: Profile | None, shards: int
) -> None:
    """And as the setting says, where there is one."""
    assert chosen(None, profile=profile) == shards
    assert chosen(None, profile=profile, wanted=3) == 3


@pytest.mark.parametrize("cores", [2], indirect=True)
@pytest.mark.usefixtures("cores")
@pytest.mark.parametrize(
    ("profile", "found", "reported"),
    [
        (Profile.LATENCY, 2, r"keeps the state in 1 shard, but .*/there has it in 2 shards,"),
        (Profile.THROUGHPUT, 1, r"keeps the state in several shards, but .* has it in 1 shard,"),
    ],
)
def test_a_profile_that_a_checkpoint_does_not_suit_is_refused(
    profile: Profile, found: int, reported: str
) -> None:
    """What is fixed, and the three ways on: without it, with what is there, with a new one."""
    with pytest.raises(ProfileShardsError, match=reported) as caught:
        chosen(found, profile=profile)
    message = str(caught.value)
    assert "fixed at its first start" in message
    assert "leave the profile out" in message
    assert f"give shards {found} besides" in message
    assert f"recover --checkpoint NEW --profile {profile}`" in message
    assert caught.value.exit_status == 2
    assert chosen(found) == found
    assert chosen(found, profile=profile, wanted=found) == found
    with pytest.raises(ShardsChangedError):
        chosen(found, profile=profile, wanted=found + 1)


@pytest.mark.parametrize(
    ("cores", "found"), [(1, 1), (1, 2), (2, 4), (64, 100)], indirect=["cores"]
)
@pytest.mark.usefixtures("cores")
def test_a_checkpoint_from_a_machine_with_other_cores_suits_throughput(found: int) -> None:
    """A container that is started on another machine has the same profile in its environment.

    On one core one shard suits both: there is nothing that another one could do meanwhile.
    """
    assert chosen(found, profile=Profile.THROUGHPUT) == found
    if found == 1:
        assert chosen(found, profile=Profile.LATENCY) == found
