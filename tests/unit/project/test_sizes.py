"""`make sizes`: what it counts, and that no limit is passed."""

from __future__ import annotations

from support.project import sizes


def test_no_size_is_over_its_limit() -> None:
    """A folder, README and ARCHITECTURE stay within what one reads at once."""
    over = [size for size in sizes.sizes() if size.limit is not None and size.found > size.limit]
    assert over == []


def test_every_option_of_every_command_counts() -> None:
    """Also those of commands of a group; shared ones once, where they are defined."""
    found = sizes.options_by_command()
    assert found["spu-assigner"] == 5
    assert found["spu-assigner topics create"] == 2
    assert found["spu-assigner explain"] == 0
