"""In how many shards a job runs: as its checkpoint has them, else as the settings say."""

from __future__ import annotations

import pytest
from spu_assigner.stream.job.checkpoint.files import Checkpoint, ShardsChangedError, choose_shards


def chosen(found: int | None, wanted: int | None) -> int:
    return choose_shards(Checkpoint(id="x", shards=found), wanted=wanted, place="/there")


@pytest.mark.parametrize(
    ("found", "wanted", "expected"), [(None, None, 1), (None, 3, 3), (2, None, 2), (2, 2, 2)]
)
def test_a_checkpoint_keeps_its_shards_and_a_new_one_has_one(
    found: int | None, wanted: int | None, expected: int
) -> None:
    """They are fixed at the first start."""
    assert chosen(found, wanted) == expected


def test_another_number_than_the_checkpoints_is_refused() -> None:
    """Clusters would be looked for where they are not."""
    with pytest.raises(ShardsChangedError, match=r"shards is 3, but checkpoint /there .* in 2"):
        chosen(2, 3)
