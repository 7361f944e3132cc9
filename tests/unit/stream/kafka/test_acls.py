"""The table of rights as it is printed; what Kafka makes of it is tested on a broker."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from spu_assigner.stream.cli import cli
from spu_assigner.stream.kafka.acls import INPUTS, Resource, Role, acls
from spu_assigner.stream.kafka.topics import JOB_TOPICS


def test_the_job_reads_its_inputs_and_writes_all_else_by_whole_names() -> None:
    """A right for a prefix would also be one for what begins alike."""
    given = acls(Role.JOB, prefix="p.", query_name="q")
    reading = {acl.name for acl in given if acl.operation == "Read"}
    writing = {acl.name for acl in given if acl.operation == "Write"}
    assert reading == {*(f"p.{name}" for name in INPUTS), "p.assigner-commits"}
    others = {f"p.{spec.name}" for spec in JOB_TOPICS if spec.name not in INPUTS}
    assert writing == {*others, "p.q"}
    assert {acl.resource for acl in given} == {Resource.TOPIC, Resource.TRANSACTIONAL_ID}


ADD = "kafka-acls --bootstrap-server k:1 --add --allow-principal User:"


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (
            ["--topic-prefix", "p.", "--role", "producer", "--principal", "User:me"],
            [f"{ADD}me --operation Write --topic p.{name}" for name in INPUTS],
        ),
        (
            ["--role", "applier"],  # Quoted, so that no shell makes file names of it.
            [
                f"{ADD}applier --operation Read --topic replica-map",
                f"{ADD}applier --operation Read --topic assigner-state",
                f"{ADD}applier --operation Read --operation Write --operation Create "
                "--topic applied-topics",
                f"{ADD}applier --operation Create --operation Alter --operation Delete "
                "--operation DescribeConfigs --topic '*'",
            ],
        ),
        (["--role", "group", "--group", "mine"], [f"{ADD}group --operation Read --group mine"]),
    ],
)
def test_a_role_s_rights_are_printed_as_commands(arguments: list[str], lines: list[str]) -> None:
    """They are for whoever administers Kafka, who may have nothing of ours."""
    done = CliRunner().invoke(cli, ["topics", "acls", "-b", "k:1", *arguments])
    assert done.output.splitlines() == lines


def test_without_a_role_all_are_printed_also_as_json() -> None:
    """So that a tool can set them."""
    asked = ["topics", "acls", "-o", "json", "--mapped-topic", "orders"]
    done = CliRunner().invoke(cli, asked, env={"SPU_ASSIGNER_QUERY_NAME": "mine"})
    found = [json.loads(line) for line in done.output.splitlines()]
    assert {each["principal"] for each in found} == {f"User:{role}" for role in Role}
    names = {"query_name": "mine", "group": "my-group", "cluster_id": "my-cluster"}
    given = [(role, acl) for role in Role for acl in acls(role, mapped="orders", **names)]
    assert [(each["role"], each["name"], each["operation"]) for each in found] == [
        (role, acl.name, acl.operation) for role, acl in given
    ]


def test_what_some_of_a_role_use_is_listed_and_not_demanded() -> None:
    """Of what everybody needs `doctor` makes a finding."""
    optional = {
        role: {acl.name for acl in {*acls(role)} - {*acls(role, with_optional=False)}}
        for role in Role
    }
    assert {role: names for role, names in optional.items() if names} == {
        Role.CONSUMER: {"applied-topics", "follow."},
        Role.APPLIER: {"*"},
        Role.MOVER: {
            *("spu-events", "assigner-state", "topic-events"),
            *("topic-status", "ring-events", "dead-letter"),
        },
    }
