"""`kafkapy configs`: describe and alter the settings of topics and brokers."""

from typing import Annotated

import typer

from kafkapy.client.admin import APPEND, BROKER, DELETE, SET, SUBTRACT, TOPIC, Admin
from kafkapy.tools.errors import CallError
from kafkapy.tools.options import DEFAULT_SERVER, Json, Servers, cluster_of, key_values
from kafkapy.tools.output import print_json, print_table

app = typer.Typer(no_args_is_help=True, help="Describe and alter the settings of topics and brokers.")

TopicName = Annotated[str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="The settings of a topic.")]
BrokerId = Annotated[int | None, typer.Option("--broker", metavar="ID", help="The settings of one broker.")]
AllBrokers = Annotated[bool, typer.Option("--all-brokers", help="What is set for all brokers together.")]


@app.command("describe")
def describe(
    keys: Annotated[list[str] | None, typer.Argument(metavar="KEY", help="Only these settings.")] = None,
    topic: TopicName = None,
    broker: BrokerId = None,
    all_brokers: AllBrokers = False,
    everything: Annotated[bool, typer.Option("--all", help="Also settings that have their default.")] = False,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVER,
) -> None:
    """Show settings, their values and where these come from.

    Examples:

        kafkapy configs describe --topic flights

        kafkapy configs describe --broker 0 --all --json
    """
    kind, name = _resource(topic, broker, all_brokers)
    with Admin(cluster_of(servers)) as admin, admin.cluster:
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
    else:
        print("Every setting has its default; --all shows them.")


@app.command("alter")
def alter(
    topic: TopicName = None,
    broker: BrokerId = None,
    all_brokers: AllBrokers = False,
    set_: Annotated[list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="Set; repeat it.")] = None,
    delete: Annotated[
        list[str] | None, typer.Option("--delete", "-d", metavar="KEY", help="Back to the default.")
    ] = None,
    append: Annotated[list[str] | None, typer.Option("--append", metavar="KEY=VALUE", help="Add to a list.")] = None,
    subtract: Annotated[
        list[str] | None, typer.Option("--subtract", metavar="KEY=VALUE", help="Take from a list.")
    ] = None,
    validate_only: Annotated[bool, typer.Option("--validate-only", help="Only check whether it would do.")] = False,
    servers: Servers = DEFAULT_SERVER,
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
        changes += [(key, operation, value) for key, value in key_values(option, texts or ()).items()]
    if not changes:
        raise CallError("configs alter needs --set, --delete, --append or --subtract")
    with Admin(cluster_of(servers)) as admin, admin.cluster:
        admin.alter_configs(kind, name, changes, validate_only=validate_only)
    print("The settings would do." if validate_only else f"Changed: {', '.join(change[0] for change in changes)}.")


def _resource(topic: str | None, broker: int | None, all_brokers: bool) -> tuple[int, str]:
    if (topic is not None) + (broker is not None) + all_brokers != 1:
        raise CallError("say whose settings: one of --topic TOPIC, --broker ID or --all-brokers")
    if topic is not None:
        return TOPIC, topic
    return BROKER, "" if broker is None else str(broker)
