"""What the jars' locks are resolved from, and the program that writes them.

    python tests/support/project/jars_lock.py --write

Ivy comes with PySpark, so no Maven is needed. It resolves ROOTS, and every jar that comes is
written with its SHA-256 to `jars.lock.json`, from which the product fetches. Brokers of KAFKAS,
other versions that tests start, have a lock of their own.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

from spu_assigner.stream.local.jvm.build_cache import cache_home, locked, scratch
from spu_assigner.stream.local.jvm.jars import LOCK_FILE, Group, Jar, ensure_all, sha256_of
from spu_assigner.stream.local.jvm.java import ensure_java


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """What a group is resolved from; `whole` brings what the artifact depends on, too."""

    coordinate: str  # organisation:artifact:version
    whole: bool = False
    without: tuple[str, ...] = ()  # organisations whose artifacts Spark brings itself


# Newer than Kafka 4.2.1 asks for: CVE-2026-49844; CVE-2026-54512 to 54518, 68494.
_LOGGING: Final = (
    # Kafka logs through SLF4J 1.7; without this its log stays empty.
    Root(coordinate="org.apache.logging.log4j:log4j-slf4j-impl:2.25.5"),
    Root(coordinate="org.apache.logging.log4j:log4j-core:2.25.5"),
    Root(coordinate="org.apache.logging.log4j:log4j-api:2.25.5"),
)
_WITH_KAFKA: Final = (
    *_LOGGING,
    Root(coordinate="com.fasterxml.jackson.core:jackson-core:2.21.5"),
    Root(coordinate="com.fasterxml.jackson.core:jackson-databind:2.21.5"),
)

_AWS_SDK: Final = "2.35.4"  # that Hadoop 3.5.0 is built with
_SPARK_BRINGS: Final = (
    *("commons-codec", "commons-logging", "io.netty"),
    *("org.apache.httpcomponents", "org.slf4j"),
)

ROOTS: Final[Mapping[Group, tuple[Root, ...]]] = {
    "spark-kafka": (
        Root(coordinate="org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"),
        Root(coordinate="org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0"),
        Root(coordinate="org.apache.kafka:kafka-clients:3.9.2"),
        Root(coordinate="org.apache.commons:commons-pool2:2.13.1"),
    ),
    "spark-local": (Root(coordinate="com.globalmentor:hadoop-bare-naked-local-fs:0.1.0"),),
    # Of the Hadoop that PySpark brings. It names all of Amazon's SDK as one jar of 686 MB; these
    # are the modules that a checkpoint's file system uses.
    "spark-s3": (
        Root(coordinate="org.apache.hadoop:hadoop-aws:3.5.0"),
        Root(coordinate="software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1"),
        *(
            Root(
                coordinate=f"software.amazon.awssdk:{module}:{_AWS_SDK}",
                whole=True,
                without=_SPARK_BRINGS,
            )
            for module in ("s3", "s3-transfer-manager", "sts")
        ),
    ),
    "broker": (Root(coordinate="org.apache.kafka:kafka_2.13:4.2.1", whole=True), *_WITH_KAFKA),
    "kafka-placer": (Root(coordinate="org.apache.kafka:kafka-server-common:4.0.0", whole=True),),
    # `kafka-reassign-partitions`, to be run with the broker's jars.
    "kafka-tools": (Root(coordinate="org.apache.kafka:kafka-tools:4.2.1"),),
    # A neighbour that the job is measured against; large, because of RocksDB.
    "kafka-streams": (
        Root(coordinate="org.apache.kafka:kafka-streams:4.2.1", whole=True),
        *_WITH_KAFKA,
    ),
}

KAFKAS: Final = ("3.9.2", "4.4.0")  # the oldest and the newest that tests run the product on
KAFKAS_LOCK: Final = Path(__file__).parents[2] / "data/kafkas.lock.json"


def of_kafka(version: str) -> tuple[Root, ...]:
    """What a broker of this version is resolved from.

    Kafka 3 names classes of Log4j 1, and brings the Jackson that its Scala module agrees with.
    """
    root = Root(coordinate=f"org.apache.kafka:kafka_2.13:{version}", whole=True)
    if version.startswith("3."):
        return (root, *_LOGGING, Root(coordinate="ch.qos.reload4j:reload4j:1.2.26"))
    return (root, *_WITH_KAFKA)


def broker_locks() -> dict[str, list[Jar]]:
    """What the lock has for a broker of each of KAFKAS."""
    groups = json.loads(KAFKAS_LOCK.read_text(encoding="utf-8"))["groups"]
    return {version: [Jar(**each) for each in jars] for version, jars in groups.items()}


def broker_jars(version: str) -> list[Path]:
    """The jars of a broker of one of KAFKAS; fetched if the cache lacks them."""
    return ensure_all(["broker"], lock={"broker": broker_locks()[version]})["broker"]


def write_lock(path: Path = LOCK_FILE, roots: Mapping[str, tuple[Root, ...]] = ROOTS) -> None:
    """Resolve roots again and write what came, with hashes, as a lock."""
    home = cache_home()
    java = ensure_java()
    with locked(home), scratch(home) as folder:
        (folder / "ivy.xml").write_text(_ivy_module(roots), encoding="utf-8")
        pattern = folder / "jars" / "[conf]" / "[organisation]~[artifact]~[revision].[ext]"
        command = [
            *(
                str(java.executable),
                "-jar",
                str(_ivy_jar()),
                "-warn",
                "-cache",
                str(folder / "ivy"),
            ),
            *("-ivy", str(folder / "ivy.xml"), "-retrieve", str(pattern)),
        ]
        subprocess.run(command, check=True)
        groups = {
            group: [
                {
                    "coordinate": jar.stem.replace("~", ":"),
                    "sha256": sha256_of(jar),
                    "size": jar.stat().st_size,
                }
                for jar in sorted((folder / "jars" / group).glob("*.jar"))
            ]
            for group in roots
        }
    text = json.dumps({"groups": groups}, indent=1)
    path.write_text(f"{text}\n", encoding="utf-8")


def _ivy_module(roots: Mapping[str, tuple[Root, ...]]) -> str:
    confs = "".join(f"<conf name={quoteattr(group)}/>" for group in roots)
    lines = []
    for group, members in roots.items():
        for root in members:
            organisation, artifact, version = map(quoteattr, root.coordinate.split(":"))
            without = "".join(f"<exclude org={quoteattr(each)}/>" for each in root.without)
            target = quoteattr(f"{group}->{'default' if root.whole else 'master'}")
            lines.append(
                f"<dependency org={organisation} name={artifact} rev={version} conf={target} "
                f'transitive="{str(root.whole).lower()}">{without}</dependency>'
            )
    return (
        '<ivy-module version="2.0"><info organisation="spu-assigner" module="jars"/>'
        f"<configurations>{confs}</configurations>"
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return max(Path(spec.origin).parent.glob("jars/ivy-*.jar"))


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python tests/support/project/jars_lock.py --write")
    write_lock()
    write_lock(KAFKAS_LOCK, {version: of_kafka(version) for version in KAFKAS})
