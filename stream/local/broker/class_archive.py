"""What makes the embedded broker start in one second instead of three: made once, then cached.

An image is an archive of the loaded classes (Java's class data sharing), of one short run of the
real broker, and a formatted data folder. A broker whose data folder is new starts from a copy of
it, under a cluster id of its own.
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
    BrokerError,
    BrokerProcess,
    Ports,
)
from spu_assigner.stream.local.jvm.build_cache import cache_home, class_path_key, key_of, made_once
from spu_assigner.stream.local.jvm.java import Java

HEAP_MB: Final = 512  # 8 MiB messages and the cleaner's buffer fit many times
FORMAT_SECONDS_MAX: Final = 60.0
_ARCHIVE: Final = "classes.jsa"
_REVISION: Final = 2  # counted up when an image's making changes


def ensure_image(
    java: Java,
    jars: Sequence[Path],
    *,
    ports: Ports,
    environ: Mapping[str, str] | None = None,
    report: Callable[[str], None] = lambda message: None,
) -> Path:
    """The image's folder for this Java and these jars; made on first use, which takes 6 s.

    Args:
        ports: free ones, for the run that makes the image.
        report: is called when an image has to be made.

    Raises:
        BrokerError: the run that makes it failed.
    """

    def make(folder: Path) -> Path:
        report("running the broker once, so that it starts faster from now on (6 s)")
        return _make(folder, java=java, jars=jars, ports=ports)

    # The archive is valid for one Java and one class path; the data for these settings.
    settings = [f"{name}={value}" for name, value in sorted(BROKER_SETTINGS.items())]
    key = key_of([str(_REVISION), *java.build, *class_path_key(jars), *settings])
    home = cache_home(environ)
    return made_once(home, home / "broker" / key, make)


def jvm_options(image: Path) -> list[str]:
    """What lets a JVM use the image's classes; a Java without support made none."""
    archive = image / _ARCHIVE
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"] if archive.exists() else []


def copy_data(image: Path, data: Path) -> None:
    """Make a new data folder from the image's, with a cluster id of its own."""
    shutil.copytree(image / "data", data, dirs_exist_ok=True)
    path = data / "meta.properties"
    text = path.read_text(encoding="utf-8")
    path.write_text(
        re.sub(r"(?m)^cluster\.id=.*$", f"cluster.id={_new_cluster_id()}", text), encoding="utf-8"
    )


def _new_cluster_id() -> str:
    """16 random bytes as Kafka writes them; a leading dash would read as an option."""
    return f"S{base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]}"


def _make(folder: Path, *, java: Java, jars: Sequence[Path], ports: Ports) -> Path:
    process = BrokerProcess(
        java=java,
        jars=jars,
        folder=folder / "run",
        ports=ports,
        heap_mb=HEAP_MB,
        umask=-1,  # An image holds nothing of anybody's: all users of a cache may start from it.
    )
    _format(process)
    image = folder / "image"
    shutil.copytree(process.data, image / "data")
    process.jvm_options = [f"-XX:ArchiveClassesAtExit={image / _ARCHIVE}"]
    process.start()
    process.stop()
    return image


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
