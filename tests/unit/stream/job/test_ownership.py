"""Notes of who owns a checkpoint: real files, real threads; who took the id last is the owner."""

from __future__ import annotations

import random
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from spu_assigner.stream.job import ownership as ownership_module
from spu_assigner.stream.job.checkpoint.files import LocalFiles
from spu_assigner.stream.job.marker_check import FencedError
from spu_assigner.stream.job.ownership import FOLDER, Ownership


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
    """Which does not take the id again, as one does after a time-out: it would shut that out."""
    earlier, later = process(tmp_path), process(tmp_path)
    for _ in range(2):
        earlier.take(lambda: None)
        earlier.check()
    later.take(lambda: None)
    later.check()
    said = r"taken over query 'q' \(process \d+ on .+, started .+\)"
    with pytest.raises(FencedError, match=said):
        earlier.check()
    with pytest.raises(FencedError, match=said):
        earlier.take(lambda: pytest.fail("it was taken"))
    (note,) = (tmp_path / FOLDER).iterdir()  # of the owner; what is outdated is removed
    assert stat.S_IMODE(note.stat().st_mode) == 0o600
    assert stat.S_IMODE(note.parent.stat().st_mode) == 0o700
    note.write_bytes(b"\xff[]")  # What is in it is for people; its name is what counts.
    with pytest.raises(FencedError, match=r"\(started since\)"):
        earlier.check()


def test_what_is_no_note_and_none_at_all_shut_nobody_out(tmp_path: Path) -> None:
    """Kafka is the authority: the next batch asks it."""
    owner, folder = process(tmp_path), tmp_path / FOLDER
    owner.take(lambda: None)
    for name in ("x", "9-", "9-zz", ".9-" + "0" * 32, "9-" + "0" * 31):
        (folder / name).write_text("")
    owner.check()
    for note in folder.iterdir():
        note.unlink()
    folder.rmdir()
    owner.check()
    folder.write_text("no folder")
    owner.check()


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
