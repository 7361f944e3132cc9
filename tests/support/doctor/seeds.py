"""Each thing that the doctor is to find, with what it is to say of it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from support.doctor import faults
from support.doctor.faults import Prepare, as_user, at, changed, given, java, topic_set
from support.doctor.installations import rewrite


@dataclass(frozen=True, slots=True)
class Seed:
    """One thing that is wrong, and what is to be said of it."""

    name: str
    codes: str  # all that is found, in their order
    prepare: Prepare
    fix: str  # in what is to be done about the first
    waits: bool = False  # a part of the time that there is, for an answer


CREATE, NEW, RECOVER = "topics create", "`spu-assigner recover --checkpoint NEW`", "recover"

SEEDS: Sequence[Seed] = (
    Seed("a setting that cannot be", "D001", given(SPU_ASSIGNER_SHARDS="many"), "SHARDS"),
    Seed("no address for metrics", "D001", faults.foreign_address, "SPU_ASSIGNER_METRICS_HOST"),
    Seed("no Java", "D101", java(None), "spu_assigner.stream.setup"),
    Seed("Java too old", "D101", java("11.0.2"), "spu_assigner.stream.setup"),
    Seed("jar missing", "D121", faults.jars(Path.unlink), "spu_assigner.stream.setup"),
    Seed("jar damaged", "D121", faults.jars(lambda jar: faults.flip(jar, 100)), "stream.setup"),
    Seed("no broker", "D202", at(lambda each: faults.closed_port()), "that it runs", waits=True),
    Seed(
        "silent port",
        "D202",
        at(lambda each: f"127.0.0.1:{faults.listening(each)}"),
        "check the address",
        waits=True,
    ),
    Seed("another authority", "D203", faults.stranger, "SPU_ASSIGNER_SSL_CA_FILE"),
    Seed("another host's name", "D204", faults.misnamed, "name the broker as its certificate does"),
    Seed("no TLS there", "D206", faults.no_tls, "name its port for TLS"),
    Seed("TLS there", "D207", at(lambda each: each.secured.address("SASL_SSL")), "SASL_SSL"),
    Seed("no certificate", "D208", faults.no_certificate, "SPU_ASSIGNER_SSL_KEY_FILE"),
    Seed("wrong password", "D209", as_user(SPU_ASSIGNER_SASL_PASSWORD="another"), "PASSWORD"),
    Seed("right missing", "D301", as_user("doctor-less"), "`spu-assigner topics acls`"),
    Seed("topic missing", "D302", faults.topic_gone, CREATE),
    Seed("partitions and settings", "D302", faults.partitions, "delete that topic"),
    Seed(
        "cleanup policy",
        "D302",
        topic_set("doctor-cleanup.", "replica-map", "cleanup.policy", "delete"),
        CREATE,
    ),
    Seed("checkpoint writable", "D402", changed(lambda it: it.chmod(0o777)), "chmod 700"),
    Seed(
        "offsets cut",
        "D404",
        changed(lambda it: rewrite(it / "offsets/12", lambda text: text[: text.index('"conf"')])),
        NEW,
    ),
    Seed("offsets lost", "D404", changed(lambda it: shutil.rmtree(it / "offsets")), NEW),
    Seed("state of format 2", "D405", changed(faults.have_state_in_format_2), NEW),
    Seed("other shards", "D406", given(SPU_ASSIGNER_SHARDS="5"), "--shards 5"),
    Seed("recovery broken off", "D409", changed(faults.break_off_recovery), RECOVER),
    Seed("another prefix", "D410 D502", faults.other_prefix, "topic prefix"),
    Seed("another checkpoint", "D501", changed(faults.be_another), NEW),
    Seed("older copy", "D502", changed(faults.be_older), "bring back the latest one"),
    Seed("input lost", "D504", faults.input_lost, "nothing of it was answered"),
    Seed("input replaced", "D505", faults.input_replaced, "--skip-lost"),
    Seed("repeated otherwise", "D508", faults.repeated_under_another_policy, "start once with"),
    Seed("garbled marker", "D509", faults.garbled_marker, "expected a CommitMarker"),
    Seed("another query", "D510", given(SPU_ASSIGNER_QUERY_NAME="another"), "query name"),
    Seed("open transaction on the input", "D511", faults.open_input, "kafka-transactions.sh"),
    Seed("open transaction on the markers", "D511", faults.open_markers, "find-hanging"),
)


def slug(seed: Seed) -> str:
    """A seed's name for a test and a folder."""
    return re.sub(r"\W+", "-", seed.name).strip("-")
