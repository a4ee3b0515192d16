"""Command-line options that several commands have, and parsers of their values."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import typer

from kafkapy.client.cluster import Cluster
from kafkapy.client.properties import ClientProperties
from kafkapy.client.security import PLAINTEXT, Security, read_security
from kafkapy.tools.common.errors import CallError

DEFAULT_SERVER = "127.0.0.1:9092"

Servers = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="KAFKAPY_BOOTSTRAP_SERVER",
        metavar="HOST:PORT",
        help="One broker of the cluster, or several separated by commas.",
    ),
]
Partitions = Annotated[
    list[int] | None, typer.Option("--partition", "-p", help="Only this partition of the topic; may be repeated.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        envvar="KAFKAPY_COMMAND_CONFIG",
        metavar="FILE",
        help="A properties file with TLS and login settings, as for Kafka's tools.",
    ),
]


def cluster_of(servers: str, command_config: Path | None) -> Cluster:
    """Return a client of the cluster at --bootstrap-server, with the TLS and login settings in --command-config. Raises
    CallError for an invalid address, and for a file or a setting that cannot be used."""
    security = security_of_file(command_config)
    try:
        return Cluster(servers, security=security)
    except ValueError as error:
        raise CallError(f"--bootstrap-server: {error}") from error


def security_of_file(command_config: Path | None) -> Security:
    """Return the TLS and login settings in --command-config, PLAINTEXT without a file. Properties for other purposes
    are not looked at, as by Kafka's tools. Raises CallError for a file or a setting that cannot be used."""
    if command_config is None:
        return PLAINTEXT
    from kafkapy.server.config.properties import PropertiesError, load_properties

    try:
        properties = load_properties(command_config)
    except (OSError, PropertiesError) as error:
        raise CallError(f"--command-config {command_config}: {getattr(error, 'strerror', None) or error}") from error
    return read_security(ClientProperties(properties, where=f"{command_config}: ", error=CallError))


def through_zookeeper(context: typer.Context, zookeeper: str | None) -> bool:
    """Return True if --zookeeper is given. Raises CallError if --bootstrap-server is given, too."""
    if zookeeper is None:
        return False
    if given(context, "servers"):
        raise CallError("say one of --bootstrap-server and --zookeeper, not both")
    return True


def given(context: typer.Context, parameter: str) -> bool:
    """Return True if the user gave the parameter on the command line, False if its value is the default or comes from
    the environment."""
    source = context.get_parameter_source(parameter)
    return source is not None and source.name == "COMMANDLINE"


def key_values(option: str, texts: Iterable[str]) -> dict[str, str]:
    """Return the values of a repeated option KEY=VALUE as a dict by key. A value may contain equal signs. Raises
    CallError for a text that is not KEY=VALUE."""
    result = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise CallError(f"{option} {text!r} is not KEY=VALUE, as in retention.ms=3600000")
        result[key.strip()] = value
    return result


def timestamp_of(text: str) -> int:
    """Return the time in `text` as milliseconds since 1970. `text` is an ISO 8601 date or time (UTC if it has no zone),
    or @MILLISECONDS.

    Raises ValueError for anything else.
    """
    if text.startswith("@"):
        return int(text[1:])
    moment = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith(("Z", "z")) else text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return round(moment.timestamp() * 1000)


def named(option: str, text: str | None, known: Sequence[str]) -> list[str]:
    """Return the names in a comma-separated value of `option`, spelled as in `known`. Upper and lower case do not
    matter.

    Raises CallError for a name that is not in `known`.
    """
    spelled = {name.lower(): name for name in known}
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    for word in words:
        if word.lower() not in spelled:
            raise CallError(f"{option} {word!r} is none of {', '.join(known)}")
    return [spelled[word.lower()] for word in words]
