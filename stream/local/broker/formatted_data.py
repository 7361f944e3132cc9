"""A formatted data folder for the embedded broker: made once, then cached, for it takes seconds.

A broker whose data folder is new starts from a copy of it, under a cluster id of its own.
"""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from spu_assigner.stream.local.broker.process import (
    BROKER_SETTINGS,
    HEAP_MB,
    BrokerError,
    BrokerProcess,
    Ports,
)
from spu_assigner.stream.local.jvm.build_cache import cache_home, key_of, made_once
from spu_assigner.stream.local.jvm.java import Java

FORMAT_SECONDS_MAX: Final = 60.0
_REVISION: Final = "formatted-1"  # changes when the making of the folder changes
_UNUSED_PORTS: Final = Ports(client=9092, controller=9093)  # the settings name some


def ensure_formatted(
    java: Java,
    jars: Sequence[Path],
    *,
    environ: Mapping[str, str] | None = None,
    report: Callable[[str], None] = lambda message: None,
) -> Path:
    """The formatted folder for these jars; made on first use."""

    def make(folder: Path) -> Path:
        report("formatting a data folder for the broker (2 s)")
        process = BrokerProcess(
            java=java, jars=jars, folder=folder, ports=_UNUSED_PORTS, heap_mb=HEAP_MB
        )
        _format(process)
        return process.data

    settings = [f"{name}={value}" for name, value in sorted(BROKER_SETTINGS.items())]
    key = key_of([_REVISION, *(jar.name for jar in jars), *settings])
    home = cache_home(environ)
    return made_once(home, home / "broker" / key, make)


def copy_data(formatted: Path, data: Path) -> None:
    """Make a new data folder from the formatted one, with a cluster id of its own."""
    shutil.copytree(formatted, data, dirs_exist_ok=True)
    path = data / "meta.properties"
    text = path.read_text(encoding="utf-8")
    path.write_text(
        re.sub(r"(?m)^cluster\.id=.*$", f"cluster.id={_new_cluster_id()}", text), encoding="utf-8"
    )


def _new_cluster_id() -> str:
    """16 random bytes as Kafka writes them; a leading dash would read as an option."""
    return f"S{base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]}"


def _format(process: BrokerProcess) -> None:
    settings = process.write_settings()
    command = process.java_command(
        *("kafka.tools.StorageTool", "format"),
        *("--cluster-id", _new_cluster_id(), "--config", str(settings)),
    )
    try:
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
            timeout=FORMAT_SECONDS_MAX,
        )
    except (OSError, subprocess.SubprocessError) as reason:
        said = str(getattr(reason, "output", None) or reason).strip().splitlines()[-1]
        raise BrokerError(
            f"Kafka's storage tool failed: {said}; run `python -m spu_assigner.stream.setup`, "
            "which checks Java and the jars"
        ) from reason
