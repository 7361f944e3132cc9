"""What `drain` says while it waits for the job: ten minutes of silence are long."""

from __future__ import annotations

from typing import Any

import pytest
from spu_assigner.stream.clusters.drain import draining, job_wait
from spu_assigner.stream.clusters.drain.draining import Draining
from spu_assigner.stream.clusters.drain.job_wait import DrainError, JobWait
from spu_assigner.stream.clusters.moves.options import MoveOptions
from spu_assigner.stream.clusters.plan.sources import PlanRequest
from spu_assigner.stream.kafka.config.connection import Connection
from support.events.plans import maps

REQUEST = PlanRequest(
    connection=Connection(bootstrap_servers="127.0.0.1:1"), target_connection=None, cluster_id="c1"
)


def wait_for_maps(lists: Any, monkeypatch: pytest.MonkeyPatch, *held: str) -> None:
    monkeypatch.setattr(draining, "read_maps", lambda *_: maps({"t": lists, "u": [[1, 3]]}))
    monkeypatch.setattr(draining, "held_topics", lambda *_: dict.fromkeys(held, "why"))
    monkeypatch.setattr(draining, "job_state", lambda _: object())
    monkeypatch.setattr(draining, "LOOK_SECONDS", 0.01)
    Draining(REQUEST, 3, MoveOptions())._await_maps(JobWait(0.05))


def test_drain_says_what_it_waits_for_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job that runs has answered by then, and is not spoken of."""
    with pytest.raises(DrainError, match="2 topics still have SPU 3 in the map"):
        wait_for_maps([[3]], monkeypatch)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(job_wait, "NOTICE_SECONDS", 0.0)
    with pytest.raises(DrainError, match="1 topic still has SPU 3 in the map"):
        wait_for_maps([[1]], monkeypatch)
    assert capsys.readouterr().err == (
        "waits    for the job to take SPU 3 out of the maps of 1 topic, 0 s at most\n"
    )


def test_maps_that_the_job_cannot_change_are_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are named after the wait; one that the job has yet to answer is waited for."""
    wait_for_maps([[3]], monkeypatch, "t", "u")
    with pytest.raises(DrainError, match="2 topics still have SPU 3 in the map"):
        wait_for_maps([[3]], monkeypatch, "t")
