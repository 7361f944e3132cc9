"""Whether what runs in this container does its work: exit status 0 if so, else 1 and why.

A master is alive; a worker is registered with one; a job is ready and shows signs of life, as its
own `/ready` and `/live` report. Other containers have nothing that could be asked.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from pathlib import Path

SECONDS_MAX = 8.0


def page(address: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{address}", timeout=SECONDS_MAX) as answer:
        content: bytes = answer.read()
    return content.decode()


def fault(role: str) -> str | None:
    """What is wrong; None if nothing is."""
    if role == "master":
        status = json.loads(page("8080/json/"))["status"]
        return None if status == "ALIVE" else f"the master is {status}"
    if role == "worker":
        master = json.loads(page("8081/json/"))["masterurl"]
        return None if master else "the worker has no master"
    if role == "job":
        port = os.environ.get("SPU_ASSIGNER_METRICS_PORT", "4060")
        for question in ("ready", "live"):  # what is not so is a 503, an error
            page(f"{port}/{question}")
    return None


def main() -> int:
    try:
        role = Path("/tmp/role").read_text(encoding="utf-8").strip()
    except OSError:
        return 0
    try:
        found = fault(role)
    except (OSError, ValueError, KeyError) as error:
        found = f"the {role} does not answer: {error}"
    if found is not None:
        print(found)
    return 0 if found is None else 1


if __name__ == "__main__":
    sys.exit(main())
