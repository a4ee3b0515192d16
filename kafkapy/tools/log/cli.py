"""The command `kafkapy log`: commands for log directories and the files in them. Each command is imported when it is
called."""

from collections.abc import Sequence

import typer

from kafkapy.tools.lazy_commands import add_commands

COMMANDS = {
    "dump": "kafkapy.tools.log.dump.cli:dump",
    "stats": "kafkapy.tools.log.stats.cli:stats",
    "verify": "kafkapy.tools.log.verify.cli:verify",
    "find": "kafkapy.tools.log.find.cli:find",
    "tail": "kafkapy.tools.log.tail.cli:tail",
    "diff": "kafkapy.tools.log.diff.cli:diff",
    "export": "kafkapy.tools.log.export.cli:export",
    "import": "kafkapy.tools.log.import_07.cli:import_",
    "adopt": "kafkapy.tools.log.adopt:adopt",
}


def of_log() -> None:
    """Inspect log directories of kafkapy or Apache Kafka without a broker; repair, import and adopt them."""


def app_for(words: Sequence[str]) -> typer.Typer:
    """Return the typer application of `kafkapy log`: with all commands, or only with the command that the words after
    `kafkapy log` name."""
    app = typer.Typer(no_args_is_help=True)
    app.callback()(of_log)
    add_commands(app, COMMANDS, words)
    return app
