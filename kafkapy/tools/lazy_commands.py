"""Registers commands so that only the called command is imported, and need not wait for the imports of other
commands."""

from collections.abc import Mapping, Sequence
from importlib import import_module

import typer


def add_commands(app: typer.Typer, commands: Mapping[str, str], words: Sequence[str]) -> None:
    """Import and register the command that the first of `words` names. If that is no command, as for the help, register
    all.

    `commands` maps each name to `module:attribute`. The attribute is the command's function, or a Typer with
    subcommands.
    """
    named = [word for word in words[:1] if word in commands]
    for name in named or commands:
        module, _, attribute = commands[name].partition(":")
        found = getattr(import_module(module), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
