"""The jar of the product's own Java: compiled from the source beside it, and kept with it.

    python tests/support/project/java_jar.py

It needs a JDK. The manifest holds the source's SHA-256, by which a test finds a jar that is older
than its source; equal sources and compilers give equal bytes.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from spu_assigner.stream.local.jvm.jars import EXTENSION, ensure
from spu_assigner.stream.local.jvm.java import ensure_java
from spu_assigner.stream.local.jvm.spark_class_archive import pyspark_folder

sys.path.insert(0, str(Path(__file__).parents[2]))  # for `support`, as pytest does
from support.bench.preparing import JAVA_RELEASE, compiler_of

SOURCES: Final = sorted(EXTENSION.parent.glob("*.java"))
MANIFEST: Final = "META-INF/MANIFEST.MF"
DIGEST: Final = "Source-SHA-256"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the first that a zip file can say


def source_digest() -> str:
    digest = hashlib.sha256()
    for source in SOURCES:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()


def stated_digest(jar: Path = EXTENSION) -> str:
    """Of the source that a jar was compiled from, as its manifest says."""
    with zipfile.ZipFile(jar) as archive:
        lines = archive.read(MANIFEST).decode().splitlines()
    return dict(line.split(": ", 1) for line in lines if line)[DIGEST]


def packed() -> bytes:
    """The jar, compiled now."""
    libraries = [pyspark_folder() / "jars/*", *ensure("spark-kafka")]
    content = io.BytesIO()
    with (
        tempfile.TemporaryDirectory() as folder,
        zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        command = [compiler_of(ensure_java()), "--release", JAVA_RELEASE, "-Werror"]
        paths = ["-cp", ":".join(map(str, libraries)), "-d", folder]
        subprocess.run([*command, "-Xlint:all,-path,-classfile", *paths, *SOURCES], check=True)
        manifest = f"Manifest-Version: 1.0\n{DIGEST}: {source_digest()}\n\n"
        files = {MANIFEST: manifest.encode()}
        for path in sorted(Path(folder).rglob("*.class")):
            files[path.relative_to(folder).as_posix()] = path.read_bytes()
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
    return content.getvalue()


if __name__ == "__main__":
    EXTENSION.write_bytes(packed())
    print(f"{EXTENSION.name}: {EXTENSION.stat().st_size:,} bytes")
