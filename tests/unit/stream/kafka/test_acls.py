"""The table of rights as it is printed; what Kafka makes of it is tested on a broker."""

from __future__ import annotations

import json

from click.testing import CliRunner
from spu_assigner.stream.cli import cli
from spu_assigner.stream.kafka.acls import ANSWERS, INPUTS, Resource, Role, acls
from spu_assigner.stream.kafka.topics import JOB_TOPICS, TOPICS


def test_the_job_reads_its_inputs_and_writes_all_else_by_whole_names() -> None:
    """A right for a prefix would also be one for what begins alike."""
    given = acls(Role.JOB, prefix="p.", query_name="q", group="g")
    reading = {acl.name for acl in given if acl.operation == "Read"}
    writing = {acl.name for acl in given if acl.operation == "Write"}
    assert reading == {*(f"p.{name}" for name in INPUTS), "p.assigner-commits"}
    others = {f"p.{spec.name}" for spec in JOB_TOPICS if spec.name not in INPUTS}
    assert writing == {*others, "p.q"}
    assert {acl.resource for acl in given} == {Resource.TOPIC, Resource.TRANSACTIONAL_ID}


def test_the_jobs_topics_are_those_of_its_table() -> None:
    """Also without prefix and query: the job looks at its own rights."""
    given = acls(Role.JOB, query_name="", group="")
    topics = {acl.name for acl in given if acl.resource is Resource.TOPIC}
    assert topics == {spec.name for spec in JOB_TOPICS}
    assert {spec.name for spec in TOPICS} - topics == {"applied-topics"}


def test_a_role_s_rights_are_printed_as_commands() -> None:
    """They are for whoever administers Kafka, who may have nothing of ours."""
    asked = ["topics", "acls", "-b", "k:1", "--topic-prefix", "p.", "--role", "producer"]
    done = CliRunner().invoke(cli, asked)
    assert done.exit_code == 0
    assert done.output.splitlines() == [
        f"kafka-acls --bootstrap-server k:1 --add --allow-principal User:producer "
        f"--operation Write --topic p.{name}"
        for name in INPUTS
    ]


def test_rights_are_printed_as_json_for_a_principal() -> None:
    """So that a tool can set them."""
    asked = ["topics", "acls", "--role", "job", "--principal", "User:CN=x", "-o", "json"]
    done = CliRunner().invoke(cli, asked, env={"SPU_ASSIGNER_QUERY_NAME": "mine"})
    found = [json.loads(line) for line in done.output.splitlines()]
    assert len(found) == len(acls(Role.JOB, query_name="mine", group=""))
    assert found[-1] == {
        "role": "job",
        "principal": "User:CN=x",
        "resource": "transactional-id",
        "name": "mine",
        "operation": "Write",
    }


def test_without_a_role_all_are_printed() -> None:
    """One call, one page."""
    done = CliRunner().invoke(cli, ["topics", "acls", "--group", "mine"])
    users = {line.split()[5] for line in done.output.splitlines()}
    assert users == {f"User:{role}" for role in Role}
    assert any(line.endswith("--operation Read --group mine") for line in done.output.splitlines())
    assert all(name in done.output for name in ANSWERS)


def test_what_some_of_a_role_use_is_listed_and_not_demanded() -> None:
    """Of what everybody needs `doctor` makes a finding; of the rest it says which command does."""
    optional = {
        role: {*acls(role, query_name="q", group="g")}
        - {*acls(role, query_name="q", group="g", with_optional=False)}
        for role in Role
    }
    (right,) = optional.pop(Role.CONSUMER)
    assert (right.name, right.operation) == ("applied-topics", "Read")
    of_movers = {right.name for right in optional.pop(Role.MOVER)}
    assert of_movers == {
        "spu-events",
        "assigner-state",
        "topic-events",
        "topic-status",
        "ring-events",
        "dead-letter",
    }
    assert not any(optional.values())


def test_an_appliers_rights_are_for_the_topics_that_are_named() -> None:
    """Any topic by default, quoted so that no shell makes file names of it."""
    asked = ["topics", "acls", "-b", "k:1", "--role", "applier"]
    listed = CliRunner().invoke(cli, asked).output.splitlines()
    add = "kafka-acls --bootstrap-server k:1 --add --allow-principal User:applier"
    assert listed == [
        f"{add} --operation Read --topic replica-map",
        f"{add} --operation Read --topic assigner-state",
        f"{add} --operation Read --operation Write --operation Create --topic applied-topics",
        f"{add} --operation Create --operation Alter --operation Delete --topic '*'",
    ]
    named = CliRunner().invoke(cli, [*asked, "--mapped-topic", "orders"]).output.splitlines()
    assert named[-1].endswith("--operation Delete --topic orders")
