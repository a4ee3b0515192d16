"""The command `kafkapy configs`: describes and alters the settings of topics and brokers."""

from typing import Annotated

import typer

from kafkapy.client.administration.admin import APPEND, BROKER, DELETE, SET, SUBTRACT, TOPIC, Admin
from kafkapy.tools.common.errors import CallError, ToolError
from kafkapy.tools.common.files_of_values import value_of
from kafkapy.tools.common.options import DEFAULT_SERVER, CommandConfig, Json, Servers, cluster_of, key_values
from kafkapy.tools.common.output import print_json, print_table

app = typer.Typer(no_args_is_help=True, help="Describe and alter the settings of topics and brokers.")

TopicName = Annotated[str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Settings of this topic.")]
BrokerId = Annotated[int | None, typer.Option("--broker", metavar="ID", help="Settings of this broker.")]
AllBrokers = Annotated[bool, typer.Option("--all-brokers", help="The defaults of all brokers of the cluster.")]


@app.command("describe")
def describe(
    keys: Annotated[list[str] | None, typer.Argument(metavar="KEY", help="Only these settings.")] = None,
    topic: TopicName = None,
    broker: BrokerId = None,
    all_brokers: AllBrokers = False,
    everything: Annotated[bool, typer.Option("--all", help="Also show settings that have their default.")] = False,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Show settings with their values and sources.

    Examples:

        kafkapy configs describe --topic flights

        kafkapy configs describe --broker 0 --all --json
    """
    kind, name = _resource(topic, broker, all_brokers)
    with Admin(cluster_of(servers, command_config)) as admin, admin.cluster:
        entries = admin.describe_configs(kind, name, keys or None, documentation=as_json)
    shown = [entry for entry in entries if everything or keys or not entry.is_default]
    if as_json:
        print_json(
            [
                {
                    "name": entry.name,
                    "value": entry.value,
                    "source": entry.source,
                    "readOnly": entry.read_only,
                    "sensitive": entry.sensitive,
                    "documentation": entry.documentation,
                    "synonyms": [{"name": n, "value": v, "source": s} for n, v, s in entry.synonyms],
                }
                for entry in shown
            ]
        )
    elif shown:
        print_table(
            ["setting", "value", "source"],
            [(e.name, "(hidden)" if e.sensitive else e.value, e.source) for e in shown],
        )
    elif all_brokers:
        print("Nothing is set for all brokers together; --broker ID shows what one broker has.")
    elif not keys:
        print("Every setting has its default; --all shows them.")
    known = {entry.name for entry in entries}
    unknown = [key for key in keys or () if key not in known]
    if unknown and not all_brokers:  # for all brokers together, only settings that are set are returned
        whose = f"topic {topic!r}" if topic is not None else f"broker {broker}"
        raise ToolError(f"{whose} has no setting {', '.join(map(repr, unknown))}; --all shows all settings")


@app.command("alter")
def alter(
    topic: TopicName = None,
    broker: BrokerId = None,
    all_brokers: AllBrokers = False,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            "-s",
            metavar="KEY=VALUE",
            help="Set a value; may be repeated. KEY=@FILE reads the value, such as a password, from a file.",
        ),
    ] = None,
    delete: Annotated[
        list[str] | None,
        typer.Option("--delete", "-d", metavar="KEY", help="Remove the value, so that the default holds."),
    ] = None,
    append: Annotated[
        list[str] | None, typer.Option("--append", metavar="KEY=VALUE", help="Add to a setting that is a list.")
    ] = None,
    subtract: Annotated[
        list[str] | None, typer.Option("--subtract", metavar="KEY=VALUE", help="Remove from a setting that is a list.")
    ] = None,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Only check whether the values are valid.")
    ] = False,
    servers: Servers = DEFAULT_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Change settings while the broker runs.

    Examples:

        kafkapy configs alter --topic flights --set retention.ms=86400000 --delete segment.bytes

        kafkapy configs alter --broker 0 --set log.cleaner.threads=2
    """
    kind, name = _resource(topic, broker, all_brokers)
    changes: list[tuple[str, int, str | None]] = [(key, DELETE, None) for key in delete or ()]
    for option, operation, texts in (
        ("--set", SET, set_),
        ("--append", APPEND, append),
        ("--subtract", SUBTRACT, subtract),
    ):
        values = key_values(option, texts or ())
        changes += [(key, operation, value_of(f"{option} {key}", value)) for key, value in values.items()]
    if not changes:
        raise CallError("configs alter needs --set, --delete, --append or --subtract")
    with Admin(cluster_of(servers, command_config)) as admin, admin.cluster:
        admin.alter_configs(kind, name, changes, validate_only=validate_only)
    print("The settings are valid." if validate_only else f"Changed: {', '.join(change[0] for change in changes)}.")


def _resource(topic: str | None, broker: int | None, all_brokers: bool) -> tuple[int, str]:
    if (topic is not None) + (broker is not None) + all_brokers != 1:
        raise CallError("say whose settings: one of --topic TOPIC, --broker ID or --all-brokers")
    if topic is not None:
        return TOPIC, topic
    return BROKER, "" if broker is None else str(broker)
