"""`spu-assigner completion`: the script that a shell loads to complete the command line."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

_SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
_PROGRAM = "spu-assigner"
_VARIABLE = "_SPU_ASSIGNER_COMPLETE"  # click's own name for a program called so


@click.command()
@click.argument("shell", type=click.Choice([*_SHELLS]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes spu-assigner in SHELL.

    \b
    bash:  eval "$(spu-assigner completion bash)"
    zsh:   eval "$(spu-assigner completion zsh)"
    fish:  spu-assigner completion fish | source
    """
    click.echo(_SHELLS[shell](ctx.find_root().command, {}, _PROGRAM, _VARIABLE).source())
