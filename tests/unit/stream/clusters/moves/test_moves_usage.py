"""What `apply` says of options of moves that make no sense."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from spu_assigner.stream.cli import cli


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cluster", "c1", "--throttle", "50MB/s"], "need --moves"),
        (["--moves"], "Missing option '--cluster'"),
        (["--cluster", "c1", "--moves", "--throttle", "fast"], "'fast' is no rate; expected bytes"),
        (["--cluster", "c1", "--moves", "--concurrency", "0"], "0 is not in the range"),
        (["--cancel", "--moves"], "and nothing beside it: leave out --moves (see"),
        (["--cancel", "--cluster", "c1", "--topics", "t"], ": leave out --topics (see"),
        (["--cancel", "--force", "-b", "k:1"], "beside it: leave out --force (see"),
        (["--cancel", "-o", "json", "--yes"], "beside it: leave out --output, --yes (see"),
        (["--cluster", "c1", "--forget-throttle", "3"], "need --moves"),
        (["plan.json", "--cancel"], "and nothing beside it: leave out PLAN (see"),
        (["--cancel", "--desired", "f"], "--cancel cannot be given with desired topics; leave it"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: list[str], message: str) -> None:
    """Before Kafka is asked anything; status 2, as all wrong usage."""
    done = CliRunner().invoke(cli, ["apply", *options])
    assert done.exit_code == 2, done.output
    assert message in done.output
