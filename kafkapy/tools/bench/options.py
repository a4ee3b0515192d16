"""The options that the commands of `kafkapy bench` share, and the properties of Kafka's clients that they take."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from kafkapy.client.properties import ClientProperties, is_security
from kafkapy.client.security import Security, read_security
from kafkapy.tools.common.errors import CallError
from kafkapy.tools.common.options import key_values, security_of_file
from kafkapy.tools.common.pictures import FORMATS

DEFAULT_S = 10.0
ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}

Topic = Annotated[str, typer.Option("--topic", "-t", metavar="TOPIC", help="The topic.")]
Partitions = Annotated[
    list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this partition; may be repeated.")
]
Create = Annotated[bool, typer.Option("--create", help="Create the topic if it is missing.")]
CreatePartitions = Annotated[
    int, typer.Option("--partitions", min=-1, help="With --create: partitions of the topic. -1: the broker's default.")
]
CreateReplicas = Annotated[
    int,
    typer.Option(
        "--replication-factor", min=-1, help="With --create: replicas of each partition. -1: the broker's default."
    ),
]
Duration = Annotated[
    float | None,
    typer.Option("--duration", "-d", metavar="SECONDS", help="How long to measure at most."),
]
Threads = Annotated[int, typer.Option("--threads", min=1, help="How many clients, each a process of its own.")]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help=f"Draw a picture: {', '.join(FORMATS)}.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing picture.")]
Metrics = Annotated[bool, typer.Option("--print-metrics", help="Also print the figures of each client.")]
Interval = Annotated[
    int,
    typer.Option(
        "--reporting-interval",
        metavar="MS",
        min=1000,
        help="How often to print a line meanwhile, if standard error is no terminal.",
    ),
]
Throughput = Annotated[
    float, typer.Option("--throughput", metavar="N", help="At most this many per second; -1: as many as possible.")
]
MorePairs = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="More properties, as after the option of Kafka's tool."),
]


def stop_rules(count: int | None, duration: float | None, option: str) -> float | None:
    """Return the seconds after which to stop, or None for no limit. Raises CallError for invalid values."""
    if count is not None and count <= 0:
        raise CallError(f"{option} {count} is not above 0")
    if duration is not None and not duration > 0:
        raise CallError(f"--duration {duration:g} is not above 0")
    return DEFAULT_S if count is None and duration is None else duration


def rate_of(throughput: float) -> float | None:
    """Return the rate per second in --throughput, or None for no limit. Raises CallError for invalid values."""
    if throughput == -1:
        return None
    if not 0 < throughput < math.inf:
        raise CallError(f"--throughput {throughput:g} is neither a rate above 0 nor -1, as many as possible")
    return throughput


def acks_of(text: str) -> int:
    if text not in ACKS:
        raise CallError(f"--acks {text!r} is none of all, 1 and 0")
    return ACKS[text]


def properties_of(
    option: str,
    file: Path | None,
    pairs: Sequence[str],
    *,
    honoured: Collection[str],
    known: Collection[str],
    refused: Mapping[str, str] | None = None,
) -> ClientProperties:
    """Return the properties of a file and of repeated options, which override those of the file.

    Raises CallError for a file that cannot be read, and for a property that is refused or unknown.
    """
    given: dict[str, str] = {}
    if file is not None:
        from kafkapy.server.config.properties import PropertiesError, load_properties

        try:
            given |= load_properties(file)
        except (OSError, PropertiesError) as error:
            raise CallError(f"{file}: {getattr(error, 'strerror', None) or error}") from error
    given |= key_values(option, pairs)
    found = ClientProperties(given, error=CallError, where=f"{option}: ")
    found.check_names(
        honoured={*honoured, "bootstrap.servers", "client.id", "security.protocol"},
        refused=refused or {},
        without_effect=set(known) - set(honoured),
        client="Kafka's clients",
    )
    return found


def security_for(properties: ClientProperties, command_config: Path | None) -> Security:
    """Return the TLS and login settings in the properties or, if there are none, those of --command-config."""
    if "security.protocol" in properties or any(is_security(name) for name in properties):
        return read_security(properties)
    return security_of_file(command_config)
