"""Faults that the doctor is to find, some for each check, with what it is to say of each."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from support.doctor import faults
from support.doctor.faults import Prepare, as_user, at, changed, given, java


@dataclass(frozen=True, slots=True)
class Seed:
    """One thing that is wrong, and what is to be said of it."""

    name: str
    codes: str  # all that is found, in their order
    prepare: Prepare
    fix: str  # in what is to be done about the first
    waits: bool = False  # a part of the time that there is, for an answer


SEEDS: Sequence[Seed] = (
    Seed("a setting that cannot be", "D001", given(SPU_ASSIGNER_SHARDS="many"), "SHARDS"),
    Seed("no address for metrics", "D001", faults.foreign_address, "SPU_ASSIGNER_METRICS_HOST"),
    Seed("no Java", "D101", java(None), "spu_assigner.stream.setup"),
    Seed("Java too old", "D101", java("11.0.2"), "spu_assigner.stream.setup"),
    Seed("jar damaged", "D121", faults.jars(lambda jar: faults.flip(jar, 100)), "stream.setup"),
    Seed(
        "silent port",
        "D202",
        at(lambda each: f"127.0.0.1:{faults.listening(each)}"),
        "check the address",
        waits=True,
    ),
    Seed("another authority", "D203", faults.stranger, "SPU_ASSIGNER_SSL_CA_FILE"),
    Seed("wrong password", "D209", as_user(SPU_ASSIGNER_SASL_PASSWORD="another"), "PASSWORD"),
    Seed("right missing", "D301", as_user("doctor-less"), "`spu-assigner topics acls`"),
    Seed("topic missing", "D302", faults.topic_gone, "topics create"),
    Seed("checkpoint writable", "D402", changed(lambda it: it.chmod(0o777)), "chmod 700"),
    Seed("offsets lost", "D404", changed(lambda it: shutil.rmtree(it / "offsets")), "recover"),
    Seed("other shards", "D406", given(SPU_ASSIGNER_SHARDS="5"), "--shards 5"),
    Seed("another prefix", "D410 D502", faults.other_prefix, "topic prefix"),
    Seed("another checkpoint", "D501", changed(faults.be_another), "recover"),
    Seed("older copy", "D502", changed(faults.be_older), "bring back the latest one"),
    Seed("input lost", "D504", faults.input_lost, "nothing of it was answered"),
    Seed("repeated otherwise", "D508", faults.repeated_under_another_policy, "start once with"),
    Seed("another query", "D510", given(SPU_ASSIGNER_QUERY_NAME="another"), "query name"),
    Seed("open transaction on the input", "D511", faults.open_input, "kafka-transactions.sh"),
    Seed("open transaction on the markers", "D511", faults.open_markers, "find-hanging"),
)


def slug(seed: Seed) -> str:
    """A seed's name for a test and a folder."""
    return re.sub(r"\W+", "-", seed.name).strip("-")
