"""`kafkapy log`: the commands for log directories and the files in them, each in a module of its own."""

from collections.abc import Sequence

import typer

from kafkapy.tools.commands import add_commands

COMMANDS = {
    "dump": "kafkapy.tools.log.dump:dump",
    "stats": "kafkapy.tools.log.stats:stats",
    "verify": "kafkapy.tools.log.verify:verify",
    "find": "kafkapy.tools.log.find:find",
    "tail": "kafkapy.tools.log.tail:tail",
    "diff": "kafkapy.tools.log.diff:diff",
    "export": "kafkapy.tools.log.export:export",
    "import": "kafkapy.tools.log.import_07:import_",
    "adopt": "kafkapy.tools.log.adopt:adopt",
}


def of_log() -> None:
    """Look into log directories, of kafkapy or of Apache Kafka, without a broker; repair, import and adopt them."""


def app_for(words: Sequence[str]) -> typer.Typer:
    """All commands, or the one that a call with these words behind `kafkapy log` needs."""
    app = typer.Typer(no_args_is_help=True)
    app.callback()(of_log)
    add_commands(app, COMMANDS, words)
    return app
