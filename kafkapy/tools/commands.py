"""Commands by name, each loaded when its word is said: none waits for what only another one needs."""

from collections.abc import Mapping, Sequence
from importlib import import_module

import typer


def add_commands(app: typer.Typer, commands: Mapping[str, str], words: Sequence[str]) -> None:
    """Registers the command that the first of `words` names, or all of them where it names none, as for the help.

    commands: from a name to `module:attribute`, where the attribute is the command's function or a group's Typer.
    """
    named = [word for word in words[:1] if word in commands]
    for name in named or commands:
        module, _, attribute = commands[name].partition(":")
        found = getattr(import_module(module), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
