"""Each thing that the doctor is to find, with what it is to say of it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spu_assigner.stream.common.release import RELEASE
from support.doctor import faults
from support.doctor.faults import Prepare, as_user, at, changed, given, java, package, topic_set
from support.doctor.installations import rewrite


@dataclass(frozen=True, slots=True)
class Seed:
    """One thing that is wrong, and what is to be said of it."""

    name: str
    codes: str  # all that is found, in their order
    prepare: Prepare
    fix: str = ""  # in what is to be done about the first; empty: the code's own
    waits: bool = False  # half of the time that there is, for an answer


SEEDS: Sequence[Seed] = (
    Seed(
        "a setting that cannot be",
        "D001",
        given(SPU_ASSIGNER_SHARDS="many"),
        "correct SPU_ASSIGNER_SHARDS",
    ),
    Seed("no Java", "D101", java(None)),
    Seed("Java too old", "D102", java("11.0.2")),
    Seed("Java does not run", "D103", java("17.0.1")),
    Seed("Java is another than it says", "D103", java("17.0.1", says=faults.stand_in("11"))),
    Seed(
        "package missing",
        "D111",
        package("spu-assigner", RELEASE, "no-such-package==1.0"),
        "pip install no-such-package==1.0",
    ),
    Seed(
        "package of another version",
        "D112",
        package("fastavro", "0.0.1"),
        "pip install 'fastavro>=",
    ),
    Seed(
        "package of a version that is out of its range",
        "D112",
        package("spu-assigner", RELEASE, "fastavro<1.0,>=0.9"),
        "pip install 'fastavro>=0.9,<1.0'",
    ),
    Seed("another release installed", "D113", package("spu-assigner", "0.1.0")),
    Seed("no Python for workers", "D114", given(PYSPARK_PYTHON="no-such-python")),
    Seed("another Python for workers", "D115", given(PYSPARK_PYTHON="/bin/sh")),
    Seed("jar missing", "D121", faults.jars(Path.unlink)),
    Seed("jar damaged", "D122", faults.jars(lambda jar: faults.flip(jar, 100))),
    Seed("another Spark", "D124", faults.other_spark),
    Seed("port taken", "D131", faults.taken_port),
    Seed("no broker", "D201", at(lambda factory: faults.closed_port())),
    Seed("silent port", "D202", at(lambda each: f"127.0.0.1:{faults.listening(each)}"), waits=True),
    Seed("another authority", "D203", faults.stranger),
    Seed("another host's name", "D204", faults.misnamed),
    Seed("no TLS there", "D206", faults.no_tls),
    Seed("TLS there", "D207", at(lambda factory: factory.secured.address("SASL_SSL"))),
    Seed("no certificate", "D208", faults.no_certificate),
    Seed("wrong password", "D209", as_user(SPU_ASSIGNER_SASL_PASSWORD="another")),
    Seed("broker's clock ahead", "D211", faults.clock),
    Seed("one broker of two", "D212", at(lambda each: f"{faults.closed_port()},{each.bootstrap}")),
    Seed(
        "right missing",
        "D301",
        as_user("doctor-less"),
        "topics acls --role job --principal User:doctor-less --topic-prefix doctor.",
    ),
    Seed("topic missing", "D302", faults.topic_gone, "topics create --topic-prefix doctor-gone."),
    Seed("partitions and settings", "D302 D303 D304", faults.partitions, "topics create"),
    Seed(
        "cleanup policy",
        "D304",
        topic_set("doctor-cleanup.", "replica-map", "cleanup.policy", "delete"),
        "topics create",
    ),
    Seed(
        "too few in sync",
        "D306",
        topic_set("doctor-sync.", "topic-status", "min.insync.replicas", "2"),
    ),
    Seed(
        "short retention",
        "D309",
        topic_set("doctor-short.", "topic-events", "retention.ms", "3600000"),
    ),
    Seed(
        "unclean election",
        "D310",
        topic_set("doctor-unclean.", "assigner-state", "unclean.leader.election.enable", "true"),
    ),
    Seed("no checkpoint", "D401", changed(faults.hold_something_else)),
    Seed("checkpoint writable", "D402", changed(lambda it: it.chmod(0o777)), "chmod 700"),
    Seed("checkpoint readable", "D403", changed(lambda it: it.chmod(0o755)), "chmod 700"),
    Seed(
        "flipped bit", "D404", changed(lambda it: faults.flip(it / "state/0/1/13.changelog", 100))
    ),
    Seed("changes lost", "D404", changed(lambda it: (it / "state/0/1/12.changelog").unlink())),
    Seed(
        "offsets cut",
        "D404",
        changed(lambda it: rewrite(it / "offsets/12", lambda text: text[: text.index('"conf"')])),
    ),
    Seed("offsets lost", "D404", changed(lambda it: shutil.rmtree(it / "offsets"))),
    Seed("table cut", "D404", changed(faults.cut_table)),
    Seed(
        "newer Spark",
        "D405",
        changed(lambda it: rewrite(it / "offsets/12", lambda text: text.replace("v1", "v9", 1))),
    ),
    Seed("state of format 2", "D405", changed(faults.have_state_in_format_2)),
    Seed("other shards", "D406", given(SPU_ASSIGNER_SHARDS="5")),
    Seed("other program", "D407", changed(faults.be_of_another_program)),
    Seed("moved", "D408", faults.move),
    Seed("recovery broken off", "D409", changed(faults.break_off_recovery)),
    Seed("sums lost", "D411", changed(lambda it: (it / "offsets/.12.crc").unlink())),
    Seed("another checkpoint", "D501", changed(faults.be_another)),
    Seed("older copy", "D502", changed(faults.be_older)),
    Seed("another query", "D510", given(SPU_ASSIGNER_QUERY_NAME="another")),
    Seed("input lost", "D504", faults.input_lost),
    Seed("input replaced", "D505", faults.input_replaced),
    Seed("another prefix", "D503 D506", faults.other_prefix),
    Seed("newer release", "D507", faults.newer_release, "install release 9.1.0"),
    Seed("repeated under another policy", "D508", faults.repeated_under_another_policy),
    Seed("garbled marker", "D509", faults.garbled_marker),
    Seed("open transaction on the input", "D511", faults.open_input),
    Seed("open transaction on the markers", "D511", faults.open_markers),
)


def slug(seed: Seed) -> str:
    """A seed's name for a test and a folder."""
    return re.sub(r"\W+", "-", seed.name).strip("-")
