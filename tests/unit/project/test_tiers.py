"""The tiers of tests: nothing that `make test` leaves out is lost."""

from __future__ import annotations

from support.project import tiers


def test_the_table_of_tiers_is_that_of_the_tests() -> None:
    """`make tiers` writes it; a test that moves to another tier shows in the review."""
    page = tiers.PAGE.read_text(encoding="utf-8")
    assert tiers.table() in page
    assert tiers.written(page) == page


def test_each_package_that_has_heavy_tests_has_one_in_the_quick_tier() -> None:
    """Else a fault there would be found before a release only."""
    functions = list(tiers.heavy_tests())
    folders = {each.place.rpartition("/")[0] for each in functions}
    assert {each.place.rpartition("/")[0] for each in functions if each.is_smoke} == folders
