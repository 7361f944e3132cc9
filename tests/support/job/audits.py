"""`spu-assigner verify` as a second judge."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner
from spu_assigner.stream.cli import cli


def audit(bootstrap_servers: str, prefix: str, *options: str) -> tuple[int, dict[str, Any]]:
    """Its exit status and report."""
    place = ["-b", bootstrap_servers, "--topic-prefix", prefix, "--output", "json"]
    result = CliRunner().invoke(cli, ["verify", *place, *options], env={})
    assert result.stdout, result.stderr or result.exception
    return result.exit_code, json.loads(result.stdout)
