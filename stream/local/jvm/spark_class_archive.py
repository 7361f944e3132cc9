"""Where the archive of Spark's classes is, and what lets a JVM use it.

An archive is valid for one Java and one class path; `job/run/spark_class_archive.py` makes it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from spu_assigner.stream.local.jvm.build_cache import cache_home, class_path_key, key_of
from spu_assigner.stream.local.jvm.java import Java

ARCHIVE: Final = "classes.jsa"
SILENT: Final = ("-Xlog:cds*=off",)  # the JVM would report on the job's standard output
_REVISION: Final = 3  # counted up when an archive's making changes


def jvm_options(
    java: Java, jars: Sequence[Path], environ: Mapping[str, str] | None = None
) -> list[str]:
    """What lets a JVM use the archive; nothing, where none was made."""
    archive = archive_folder(java, jars, environ) / ARCHIVE
    if not archive.exists():
        return []
    with suppress(OSError):  # Of a cache that may only be read.
        os.utime(archive.parent)  # Those that were not used for longest go first.
    # An archive that does not fit is none.
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", *SILENT]


def archive_folder(
    java: Java, jars: Sequence[Path], environ: Mapping[str, str] | None = None
) -> Path:
    """Where the archive of classes for these versions and jars is."""
    parts = [str(_REVISION), *java.build, version("pyspark")]
    package = pyspark_folder()
    own_jars = sorted((package / "jars").glob("*.jar"))
    parts += [str(package), *class_path_key(own_jars), *class_path_key(jars)]
    return cache_home(environ) / "spark" / key_of(parts)


def pyspark_folder() -> Path:
    """PySpark's folder, whose jars come first on the class path."""
    spec = find_spec("pyspark")
    return Path() if spec is None or spec.origin is None else Path(spec.origin).parent
