"""Commands that are imported only when they are called, so that none waits for another's imports."""

from collections.abc import Mapping, Sequence
from importlib import import_module

import typer


def add_commands(app: typer.Typer, commands: Mapping[str, str], words: Sequence[str]) -> None:
    """Register the command that the first of `words` names, or all if that is no command, as for the help.

    commands: by name `module:attribute`; the attribute is the command's function, or a Typer with subcommands.
    """
    named = [word for word in words[:1] if word in commands]
    for name in named or commands:
        module, _, attribute = commands[name].partition(":")
        found = getattr(import_module(module), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
