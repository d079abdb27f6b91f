"""`errand completion`: completion of commands, ids and agents for a shell."""

import click
from click.shell_completion import get_completion_class

COMPLETE_VARIABLE = "_ERRAND_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes commands, options, ids and agents in your shell.

    \b
    Examples:
      source <(./errand completion bash)            in ~/.bashrc
      source <(./errand completion zsh)             in ~/.zshrc, after compinit
      ./errand completion fish > ~/.config/fish/completions/errand.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    root = click.get_current_context().find_root().command
    # A shell looks a command up by its name alone, so this also works for ./errand.
    click.echo(_source(found(root, {}, "errand", COMPLETE_VARIABLE)))


def _source(script: "click.shell_completion.ShellComplete") -> str:
    return script.source_template % script.source_vars()
