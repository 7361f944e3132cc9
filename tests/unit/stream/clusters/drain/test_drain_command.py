"""What `drain` says of its argument."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from spu_assigner.stream.cli import cli


@pytest.mark.parametrize("broker", ["x", "-1", "1.5", "2147483648", "9" * 5000, "\u0663"])
def test_what_is_no_broker_s_id_is_reported_with_what_was_expected(broker: str) -> None:
    """Before Kafka is asked anything; status 2, as all wrong usage."""
    done = CliRunner().invoke(cli, ["drain", "--cluster", "c1", "--", broker])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "is no broker's id; expected a whole number from 0 to 2147483647 (see" in done.stderr
    assert len(done.stderr) < 300
