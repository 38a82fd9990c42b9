"""`muse completion`: the script that makes a shell complete muse's commands and flags."""

import click

_WHERE = {
    "bash": 'add to ~/.bashrc:  eval "$(muse completion bash)"',
    "zsh": 'add to ~/.zshrc:  eval "$(muse completion zsh)"',
    "fish": "muse completion fish > ~/.config/fish/completions/muse.fish",
}


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> int:
    """Print the completion script for SHELL.

    \b
      muse completion bash > ~/.local/share/bash-completion/completions/muse
    """
    from click.shell_completion import get_completion_class

    from muse.ui.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None, "click knows the three shells"
    click.echo(f"# {_WHERE[shell]}")
    click.echo(kind(cli, {}, "muse", "_MUSE_COMPLETE").source())
    return 0
