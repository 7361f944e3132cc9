"""`spu-assigner asyncapi`: the contract of the topics as an AsyncAPI document."""

from __future__ import annotations

import click


@click.command()
def asyncapi() -> None:
    """Print topics, messages, schemas and wire formats as an AsyncAPI 3.0 document (YAML).

    Asks no broker: it is the contract of this release, with a topic prefix left open.
    """
    from spu_assigner.stream.contract.asyncapi import text

    click.echo(text(), nl=False)
