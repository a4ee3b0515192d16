"""The command line as a typer application. Wrong calls are raised as CallError.

`kafkapy start` does not load this module (see `tools.main`), only `kafkapy start --help` does.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from kafkapy.tools.common.errors import CallError
from kafkapy.tools.lazy_commands import add_commands
from kafkapy.version import VERSION

EPILOG = "Examples: kafkapy start -o log.dirs=/tmp/data  |  kafkapy topics list  |  kafkapy consume flights --max 10"

COMMANDS = {
    "start": "kafkapy.tools.cli:start",
    "produce": "kafkapy.tools.produce:produce",
    "consume": "kafkapy.tools.consume.cli:consume",
    "topics": "kafkapy.tools.topics.cli:app",
    "groups": "kafkapy.tools.groups.cli:app",
    "transactions": "kafkapy.tools.transactions.cli:app",
    "configs": "kafkapy.tools.configs:app",
    "users": "kafkapy.tools.users.cli:app",
    "acls": "kafkapy.tools.acls.cli:app",
    "quotas": "kafkapy.tools.quotas.cli:app",
    "cluster": "kafkapy.tools.cluster:cluster",
    "leaders": "kafkapy.tools.leaders:app",
    "partitions": "kafkapy.tools.partitions.cli:app",
    "mirror": "kafkapy.tools.mirror.cli:mirror",
    "spark": "kafkapy.tools.spark:app",
    "bench": "kafkapy.tools.bench.cli:app",
    "tls": "kafkapy.tools.tls.cli:app",
    "zk": "kafkapy.tools.zk.cli:app",
}


def _version(wanted: bool) -> None:
    if wanted:
        print(f"kafkapy {VERSION}")
        raise typer.Exit()


def everything(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take the options that come before a command."""


def start(
    properties: Annotated[
        str | None, typer.Argument(metavar="SERVER.PROPERTIES", help="Broker settings, in Apache Kafka's format.")
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option(
            "-o",
            "--override",
            metavar="KEY=VALUE",
            help="A setting that overrides the file; may be repeated. KEY=@FILE reads the value, such as a password, "
            "from a file.",
        ),
    ] = None,
) -> None:
    """Run a broker in the foreground.

    As soon as it accepts connections it prints one line with its addresses, data directory and pid. Its log goes to
    standard error. SIGTERM or SIGINT stops it cleanly; a second one ends it at once. SIGHUP, as from a closed terminal,
    stops it cleanly, too; a broker with a TLS listener loads its certificates again instead.

    Examples:

        kafkapy start server.properties

        kafkapy start -o log.dirs=/tmp/data -o listeners=PLAINTEXT://127.0.0.1:0
    """
    from kafkapy.tools.start import add_override, serve

    overrides: dict[str, str] = {}
    for setting in override or ():
        add_override(overrides, setting)
    raise typer.Exit(serve(properties, overrides))


def app_for(words: Sequence[str]) -> typer.Typer:
    """Return the typer application for the words of a call: with all commands, or only with the command that the call
    uses."""
    app = typer.Typer(
        name="kafkapy",
        help="A Kafka-protocol broker and its tools.",
        epilog=EPILOG,
        no_args_is_help=True,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(everything)
    of_log = words[:1] == ["log"]
    if not of_log:
        add_commands(app, COMMANDS, words)
    if of_log or not words or words[0] not in COMMANDS:
        from kafkapy.tools.log import cli as log

        app.add_typer(log.app_for(words[1:] if of_log else ()), name="log")
    return app


def run(args: Sequence[str]) -> int:
    """Run one command and return its exit code. Raises CallError for a wrong call, so that typer's errors are printed
    like all others.

    typer's exceptions are recognized by their methods, since the module that defines them differs between versions of
    typer.
    """
    command: Callable[..., Any] = typer.main.get_command(app_for(args))
    try:
        result = command(list(args), prog_name="kafkapy", standalone_mode=False)
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # typer would exit with code 1
            raise ended.__context__ from None
        raise
    except Exception as error:
        code = getattr(error, "exit_code", None)
        if type(error).__name__ == "Abort":
            raise KeyboardInterrupt from error
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error, file=sys.stderr)
            return 2
        if code is None or not hasattr(error, "format_message"):
            raise
        context = getattr(error, "ctx", None)
        path = "kafkapy" if context is None else context.command_path
        message = _with_value(error.format_message().rstrip("."), getattr(error, "param", None), args)
        raise CallError(f"{message}{'' if message.endswith('?') else '.'} See: {path} --help") from error
    return result if isinstance(result, int) else 0


def _with_value(message: str, option: Any, args: Sequence[str]) -> str:
    """Return typer's sentence `message` about an option, with the wrong value of the option in it and without "Value
    error, "."""
    for place, word in enumerate(args):
        name, equals, value = word.partition("=")
        if name in getattr(option, "opts", ()) and (equals or args[place + 1 :]):
            message = message.replace(
                "Invalid value for", f"Invalid value {value if equals else args[place + 1]!r} for"
            )
            break
    return message.replace("Value error, ", "")
