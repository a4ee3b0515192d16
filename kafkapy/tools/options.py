"""Options that several commands share, and how their values are read."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import typer

from kafkapy.client.cluster import Cluster
from kafkapy.tools.errors import CallError

DEFAULT_SERVER = "127.0.0.1:9092"

Servers = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="KAFKAPY_BOOTSTRAP_SERVER",
        metavar="HOST:PORT",
        help="A broker to ask first, or several separated by commas.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
CommandConfig = Annotated[
    Path | None,
    typer.Option("--command-config", metavar="FILE", help="With --zookeeper: properties with its TLS and login."),
]


def cluster_of(servers: str) -> Cluster:
    """The cluster behind --bootstrap-server; raises CallError for what is no address."""
    try:
        return Cluster(servers)
    except ValueError as error:
        raise CallError(f"--bootstrap-server: {error}") from error


def through_zookeeper(context: typer.Context, zookeeper: str | None, file: Path | None) -> bool:
    """Whether --zookeeper says where to go; raises CallError for options that do not go together."""
    if zookeeper is None:
        if file is not None:
            raise CallError("--command-config goes with --zookeeper")
        return False
    if given(context, "servers"):
        raise CallError("say one of --bootstrap-server and --zookeeper, not both")
    return True


def given(context: typer.Context, parameter: str) -> bool:
    """Whether a parameter of the command was given in the call, and not by its default or the environment."""
    source = context.get_parameter_source(parameter)
    return source is not None and source.name == "COMMANDLINE"


def key_values(option: str, texts: Iterable[str]) -> dict[str, str]:
    """`key=value` of a repeated option; a value may hold further equal signs."""
    result = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise CallError(f"{option} {text!r} is not KEY=VALUE, as in retention.ms=3600000")
        result[key.strip()] = value
    return result


def timestamp_of(text: str) -> int:
    """Milliseconds since 1970 of an ISO 8601 date or time (UTC where it names no zone), or of @MILLISECONDS.

    Raises ValueError for anything else.
    """
    if text.startswith("@"):
        return int(text[1:])
    moment = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith(("Z", "z")) else text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return round(moment.timestamp() * 1000)


def named(option: str, text: str | None, known: Sequence[str]) -> list[str]:
    """Names of a comma-separated value in their own spelling, whatever case they are written in."""
    spelled = {name.lower(): name for name in known}
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    for word in words:
        if word.lower() not in spelled:
            raise CallError(f"{option} {word!r} is none of {', '.join(known)}")
    return [spelled[word.lower()] for word in words]
