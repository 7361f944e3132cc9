"""`spu-assigner schemas`: the schemas, in a Schema Registry for those who need one."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click
from spu_assigner.stream.config.command_options import output_option

if TYPE_CHECKING:
    from spu_assigner.schemas.avro.registry import Registered


@click.group()
def schemas() -> None:
    """Put the messages' schemas into a Schema Registry, or look whether they are there.

    The product needs none. A reader's deserializer may: it then finds each schema under the id that
    messages carry. Credentials: SPU_ASSIGNER_REGISTRY_AUTH=user:password; other authorities for
    https: SSL_CERT_FILE.
    """


@schemas.command()
@click.argument("url")
@output_option
def publish(url: str, output: str) -> int:
    """Put what is missing into the registry at URL. Safe to repeat.

    Each subject is put into mode IMPORT and back to READWRITE, so that ids can be given. Nothing is
    changed where an id of ours belongs to another schema.
    """
    from spu_assigner.stream.contract.registry_publish import SchemaRegistryClient
    from spu_assigner.stream.contract.registry_publish import publish as publish_to

    found = publish_to(SchemaRegistryClient(url, os.environ))
    _tell(output, {"published": found.missing, "unchanged": found.present})
    return 0


@schemas.command()
@click.argument("url")
@output_option
def check(url: str, output: str) -> int:
    """Look whether the registry at URL has all schemas; status 1 if one is missing."""
    from spu_assigner.stream.contract.registry_publish import SchemaRegistryClient, compare

    found = compare(SchemaRegistryClient(url, os.environ))
    _tell(output, {"missing": found.missing, "present": found.present})
    return 1 if found.missing else 0


def _tell(output: str, done: Mapping[str, Sequence[Registered]]) -> None:
    if output == "json":
        told = {name: [entry.id for entry in entries] for name, entries in done.items()}
        click.echo(json.dumps(told))
        return
    for deed, entries in done.items():
        for entry in entries:
            click.echo(f"{deed:<9}  {entry.id:>3}  {entry.type_name} version {entry.version}")
