"""Notes of who owns a checkpoint: real files, real threads; who took the id last is the owner."""

from __future__ import annotations

import random
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from spu_assigner.stream.job import ownership as ownership_module
from spu_assigner.stream.job.checkpoint.local_files import LocalFiles
from spu_assigner.stream.job.marker_check import FencedError
from spu_assigner.stream.job.ownership import FOLDER, Ownership, OwnerWatch


def process(place: Path) -> Ownership:
    return Ownership(LocalFiles(), str(place), query="q")


def names(place: Path) -> list[str]:
    return sorted(path.name for path in (place / FOLDER).iterdir())


def is_shut_out(one: Ownership) -> bool:
    try:
        one.check()
    except FencedError:
        return True
    return False


def test_a_later_process_shuts_the_earlier_one_out(tmp_path: Path) -> None:
    earlier, later = process(tmp_path), process(tmp_path)
    earlier.take(lambda: None)
    earlier.check()
    later.take(lambda: None)
    later.check()
    with pytest.raises(
        FencedError, match=r"taken over query 'q' \(process \d+ on .+, started .+\)"
    ):
        earlier.check()
    assert len(names(tmp_path)) == 1  # of the owner; what is outdated is removed


def test_the_same_process_may_take_the_id_again(tmp_path: Path) -> None:
    """After a time-out its producer is thrown away and made again."""
    only = process(tmp_path)
    only.take(lambda: None)
    only.take(lambda: None)
    only.check()


def test_a_process_that_was_shut_out_does_not_take_the_id_again(tmp_path: Path) -> None:
    """It would shut its successor out."""
    earlier, later = process(tmp_path), process(tmp_path)
    earlier.take(lambda: None)
    later.take(lambda: None)
    with pytest.raises(FencedError):
        earlier.take(lambda: pytest.fail("it was taken"))
    later.check()


def test_a_process_that_could_not_take_the_id_shuts_nobody_out(tmp_path: Path) -> None:
    owner, other = process(tmp_path), process(tmp_path)
    owner.take(lambda: None)

    def fail() -> None:
        raise ValueError("Kafka does not answer")

    with pytest.raises(ValueError, match="does not answer"):
        other.take(fail)
    owner.check()
    assert len(names(tmp_path)) == 1


@pytest.mark.parametrize("seed", range(20))
def test_of_many_that_start_at_once_the_last_that_took_the_id_is_the_owner(
    tmp_path: Path, seed: int
) -> None:
    """And the only one: a note of one that Kafka has shut out would end the one that goes on."""
    chance = random.Random(seed)
    processes = [process(tmp_path) for _ in range(6)]
    taken: list[Ownership] = []  # in Kafka's order
    pauses = [[chance.uniform(0, 0.01) for _ in range(2)] for _ in processes]

    def start(number: int) -> None:
        before, within = pauses[number]

        def take_id() -> None:
            taken.append(processes[number])
            time.sleep(within)

        time.sleep(before)
        processes[number].take(take_id)

    with ThreadPoolExecutor(len(processes)) as executor:
        list(executor.map(start, range(len(processes))))
    assert len(taken) == len(processes)
    assert [is_shut_out(each) for each in taken] == [True] * 5 + [False]


def test_who_was_killed_while_it_started_is_waited_for_once_and_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its note says that it is about to take the id, and will not change any more."""
    monkeypatch.setattr(ownership_module, "STARTING_SECONDS_MAX", 0.2)
    killed, next_one = process(tmp_path), process(tmp_path)
    killed._choose()
    next_one.take(lambda: None)
    next_one.check()
    (name,) = names(tmp_path)
    assert not name.endswith(".starting")


def test_a_process_waits_until_an_earlier_one_has_taken_the_id(tmp_path: Path) -> None:
    """So the order in which ids are taken is that of the notes."""
    order: list[str] = []
    earlier, later = process(tmp_path), process(tmp_path)
    begun, go_on = threading.Event(), threading.Event()

    def take_slowly() -> None:
        begun.set()
        go_on.wait()
        order.append("earlier")

    with ThreadPoolExecutor(2) as executor:
        first = executor.submit(earlier.take, take_slowly)
        begun.wait()
        second = executor.submit(later.take, lambda: order.append("later"))
        while len(names(tmp_path)) < 2:
            time.sleep(0.001)
        go_on.set()
        first.result()
        second.result()
    assert order == ["earlier", "later"]
    assert is_shut_out(earlier)
    assert not is_shut_out(later)


@pytest.mark.parametrize("name", ["", "x", "9-", "9-zz", ".9-" + "0" * 32, "9-" + "0" * 31])
def test_what_is_no_note_shuts_nobody_out(tmp_path: Path, name: str) -> None:
    owner = process(tmp_path)
    owner.take(lambda: None)
    (tmp_path / FOLDER / f"{name}~").write_text("")
    owner.check()
    process(tmp_path).take(lambda: None)
    assert is_shut_out(owner)


def test_a_note_that_is_damaged_shuts_out_as_well(tmp_path: Path) -> None:
    """What is in it is for people; its name is what counts."""
    owner, later = process(tmp_path), process(tmp_path)
    owner.take(lambda: None)
    later.take(lambda: None)
    (note,) = (tmp_path / FOLDER).iterdir()
    note.write_bytes(b"\xff[]")
    with pytest.raises(FencedError, match=r"\(started since\)"):
        owner.check()


def test_without_its_notes_nobody_is_shut_out(tmp_path: Path) -> None:
    """Kafka is the authority: the next batch asks it."""
    owner = process(tmp_path)
    owner.take(lambda: None)
    for note in (tmp_path / FOLDER).iterdir():
        note.unlink()
    (tmp_path / FOLDER).rmdir()
    owner.check()
    (tmp_path / FOLDER).write_text("no folder")
    owner.check()


def test_notes_are_of_this_user_alone(tmp_path: Path) -> None:
    """As all of a checkpoint: who can write there can end a job."""
    process(tmp_path).take(lambda: None)
    (note,) = (tmp_path / FOLDER).iterdir()
    assert stat.S_IMODE(note.stat().st_mode) == 0o600
    assert stat.S_IMODE(note.parent.stat().st_mode) == 0o700


def test_the_watch_reports_a_successor_once(tmp_path: Path) -> None:
    """Without an event, and without being asked."""
    owner, later = process(tmp_path), process(tmp_path)
    owner.take(lambda: None)
    reported: list[FencedError] = []
    is_reported = threading.Event()

    def note(reason: FencedError) -> None:
        reported.append(reason)
        is_reported.set()

    watch = OwnerWatch(owner, note)
    later.take(lambda: None)
    assert is_reported.wait(60)
    watch.close()
    assert len(reported) == 1
