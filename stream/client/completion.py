"""`spu-assigner completion`: the script that a shell loads to complete the command line."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_PROGRAM = "spu-assigner"
_VARIABLE = "_SPU_ASSIGNER_COMPLETE"  # click's own name for a program called so


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes spu-assigner in SHELL.

    \b
    bash:  eval "$(spu-assigner completion bash)"
    zsh:   eval "$(spu-assigner completion zsh)"
    fish:  spu-assigner completion fish | source
    """
    maker = get_completion_class(shell)
    if maker is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(maker(ctx.find_root().command, {}, _PROGRAM, _VARIABLE).source())
