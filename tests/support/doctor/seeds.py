"""Each thing that the doctor is to find, with what it is to say of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from spu_assigner.stream.common.release import RELEASE
from support.doctor.faults import (
    be_another,
    be_of_another_program,
    be_older,
    break_off_recovery,
    changed,
    clock,
    closed,
    cut_offsets,
    cut_table,
    damage,
    flip,
    garbled_marker,
    given,
    hold_something_else,
    input_lost,
    input_replaced,
    jars,
    java,
    less,
    lose_changes,
    lose_offsets,
    lose_sums,
    misnamed,
    move,
    newer_release,
    no_certificate,
    no_marker,
    no_tls,
    one_of_two,
    only_tls,
    open_to_read,
    open_to_write,
    other_prefix,
    other_spark,
    package,
    partitions,
    repeat_last,
    silent,
    stand_in,
    stranger,
    taken_port,
    topic_gone,
    topic_set,
    write_by_newer_spark,
    wrong_password,
)
from support.doctor.installations import Installation, InstallationFactory


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """One thing that is wrong, and what is to be said of it."""

    name: str
    codes: tuple[str, ...]  # all that is found, in the order of the codes
    fix: str  # in what is to be done about the first
    prepare: Callable[[InstallationFactory, Path], Installation]
    status: int = 1
    waits: bool = False  # half of the time that there is, for an answer


SEEDS: Sequence[Seed] = (
    Seed(
        name="a setting that cannot be",
        codes=("D001",),
        fix="correct SPU_ASSIGNER_SHARDS",
        prepare=given(SPU_ASSIGNER_SHARDS="many"),
    ),
    Seed(name="no Java", codes=("D101",), fix="set JAVA_HOME", prepare=java(None)),
    Seed(name="Java too old", codes=("D102",), fix="Java 17, 21, or 25", prepare=java("11.0.2")),
    Seed(
        name="Java does not run",
        codes=("D103",),
        fix="install it again",
        prepare=java("17.0.1"),
    ),
    Seed(
        name="Java is another than it says",
        codes=("D103",),
        fix="install it again",
        prepare=java("17.0.1", says=stand_in("11")),
    ),
    Seed(
        name="package missing",
        codes=("D111",),
        fix="pip install no-such-package==1.0",
        prepare=package("spu-assigner", RELEASE, "no-such-package==1.0"),
    ),
    Seed(
        name="package of another version",
        codes=("D112",),
        fix="pip install fastavro==",
        prepare=package("fastavro", "0.0.1"),
    ),
    Seed(
        name="another release installed",
        codes=("D113",),
        fix="install one release",
        prepare=package("spu-assigner", "0.1.0"),
        status=0,
    ),
    Seed(
        name="no Python for workers",
        codes=("D114",),
        fix="unset PYSPARK_PYTHON",
        prepare=given(PYSPARK_PYTHON="no-such-python"),
    ),
    Seed(
        name="another Python for workers",
        codes=("D115",),
        fix="unset PYSPARK_PYTHON",
        prepare=given(PYSPARK_PYTHON="/bin/sh"),
        status=0,
    ),
    Seed(name="jar missing", codes=("D121",), fix="make setup", prepare=jars(Path.unlink)),
    Seed(name="jar damaged", codes=("D122",), fix="downloads it again", prepare=jars(damage)),
    Seed(name="another Spark", codes=("D124",), fix="unset SPARK_HOME", prepare=other_spark),
    Seed(name="port taken", codes=("D131",), fix="another --ui-port", prepare=taken_port, status=0),
    Seed(name="no broker", codes=("D201",), fix="that the broker runs", prepare=closed),
    Seed(name="silent port", codes=("D202",), fix="check the port", prepare=silent, waits=True),
    Seed(
        name="another authority",
        codes=("D203",),
        fix="into SPU_ASSIGNER_SSL_CA_FILE",
        prepare=stranger,
    ),
    Seed(name="another host's name", codes=("D204",), fix="name the broker", prepare=misnamed),
    Seed(name="no TLS there", codes=("D206",), fix="port for TLS", prepare=no_tls),
    Seed(name="TLS there", codes=("D207",), fix="to SASL_SSL, or SSL", prepare=only_tls),
    Seed(
        name="no certificate",
        codes=("D208",),
        fix="SPU_ASSIGNER_SSL_CERTIFICATE_FILE",
        prepare=no_certificate,
    ),
    Seed(
        name="wrong password",
        codes=("D209",),
        fix="SPU_ASSIGNER_SASL_PASSWORD",
        prepare=wrong_password,
    ),
    Seed(
        name="broker's clock ahead",
        codes=("D211",),
        fix="set both clocks",
        prepare=clock,
        status=0,
    ),
    Seed(
        name="one broker of two",
        codes=("D212",),
        fix="name only brokers that exist",
        prepare=one_of_two,
        status=0,
    ),
    Seed(
        name="right missing",
        codes=("D301",),
        fix="topics acls --role job --principal User:doctor-less --topic-prefix doctor.",
        prepare=less,
    ),
    Seed(
        name="topic missing",
        codes=("D302",),
        fix="topics create --topic-prefix doctor-gone.",
        prepare=topic_gone,
    ),
    Seed(
        name="partitions and settings",
        codes=("D302", "D303", "D304"),
        fix="topics create",
        prepare=partitions,
    ),
    Seed(
        name="cleanup policy",
        codes=("D304",),
        fix="topics create",
        prepare=topic_set("doctor-cleanup.", "replica-map", "cleanup.policy", "delete"),
    ),
    Seed(
        name="too few in sync",
        codes=("D306",),
        fix="min.insync.replicas",
        prepare=topic_set("doctor-sync.", "topic-status", "min.insync.replicas", "2"),
    ),
    Seed(
        name="short retention",
        codes=("D309",),
        fix="retention.ms",
        prepare=topic_set("doctor-short.", "topic-events", "retention.ms", "3600000"),
        status=0,
    ),
    Seed(
        name="unclean election",
        codes=("D310",),
        fix="unclean.leader.election.enable",
        prepare=topic_set(
            "doctor-unclean.", "assigner-state", "unclean.leader.election.enable", "true"
        ),
        status=0,
    ),
    Seed(
        name="no checkpoint",
        codes=("D401",),
        fix="--checkpoint",
        prepare=changed(hold_something_else),
    ),
    Seed(
        name="checkpoint writable",
        codes=("D402",),
        fix="chmod 700",
        prepare=changed(open_to_write),
    ),
    Seed(
        name="checkpoint readable",
        codes=("D403",),
        fix="chmod 700",
        prepare=changed(open_to_read),
        status=0,
    ),
    Seed(name="flipped bit", codes=("D404",), fix="the latest copy", prepare=changed(flip)),
    Seed(
        name="changes lost", codes=("D404",), fix="the latest copy", prepare=changed(lose_changes)
    ),
    Seed(name="offsets cut", codes=("D404",), fix="the latest copy", prepare=changed(cut_offsets)),
    Seed(
        name="offsets lost", codes=("D404",), fix="the latest copy", prepare=changed(lose_offsets)
    ),
    Seed(name="table cut", codes=("D404",), fix="the latest copy", prepare=changed(cut_table)),
    Seed(
        name="newer Spark",
        codes=("D405",),
        fix="the release that wrote it",
        prepare=changed(write_by_newer_spark),
    ),
    Seed(
        name="other shards",
        codes=("D406",),
        fix="leave --shards",
        prepare=given(SPU_ASSIGNER_SHARDS="5"),
    ),
    Seed(
        name="other profile",
        codes=("D406",),
        fix="leave --shards and --profile out",
        prepare=given(SPU_ASSIGNER_PROFILE="latency"),
    ),
    Seed(
        name="other program",
        codes=("D407",),
        fix="the job's own",
        prepare=changed(be_of_another_program),
    ),
    Seed(name="moved", codes=("D408",), fix="move it back", prepare=move),
    Seed(
        name="recovery broken off",
        codes=("D409",),
        fix="spu-assigner recover",
        prepare=changed(break_off_recovery),
    ),
    Seed(
        name="sums lost",
        codes=("D411",),
        fix="a complete copy",
        prepare=changed(lose_sums),
        status=0,
    ),
    Seed(
        name="another checkpoint",
        codes=("D501",),
        fix="the checkpoint that is named",
        prepare=changed(be_another),
    ),
    Seed(name="older copy", codes=("D502",), fix="the latest copy", prepare=changed(be_older)),
    Seed(name="another query", codes=("D503",), fix="query name it had", prepare=no_marker),
    Seed(name="input lost", codes=("D504",), fix="--skip-lost", prepare=input_lost),
    Seed(name="input replaced", codes=("D505",), fix="--skip-lost", prepare=input_replaced),
    Seed(
        name="another prefix",
        codes=("D503", "D506"),
        fix="prefix",
        prepare=other_prefix,
    ),
    Seed(
        name="newer release",
        codes=("D507",),
        fix="install release 9.1.0",
        prepare=newer_release,
    ),
    Seed(
        name="repeated by another release",
        codes=("D508",),
        fix="start once with the release and policy",
        prepare=changed(repeat_last),
        status=0,
    ),
    Seed(
        name="garbled marker",
        codes=("D509",),
        fix="another program may write",
        prepare=garbled_marker,
    ),
)


def slug(seed: Seed) -> str:
    """A seed's name for a test and a folder."""
    return re.sub(r"\W+", "-", seed.name).strip("-")
