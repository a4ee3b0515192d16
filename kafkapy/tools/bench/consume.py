"""The command `kafkapy bench consume`, as Kafka's kafka-consumer-perf-test."""

from pathlib import Path
from typing import Annotated

import typer

from kafkapy.client.properties import CONSUMER
from kafkapy.client.raw.requests import FETCH_BYTES
from kafkapy.tools.bench.consuming import ConsumeJob
from kafkapy.tools.bench.figures import Measure
from kafkapy.tools.bench.leaders import Place, shared_out, shares_of
from kafkapy.tools.bench.options import (
    Duration,
    Force,
    Interval,
    Metrics,
    MorePairs,
    Partitions,
    Plot,
    Threads,
    Topic,
    properties_of,
    security_for,
    stop_rules,
)
from kafkapy.tools.bench.report import Output, measure
from kafkapy.tools.bench.topics import partitions_of
from kafkapy.tools.common.errors import CallError
from kafkapy.tools.common.options import DEFAULT_SERVER, CommandConfig, Json, Servers, given

_HONOURED = {"max.partition.fetch.bytes"}


def consume(
    context: typer.Context,
    topic: Topic,
    more: MorePairs = None,
    messages: Annotated[
        int | None, typer.Option("--messages", "-n", help="How many records to read; waits for new records if needed.")
    ] = None,
    duration: Duration = None,
    fetch_size: Annotated[
        int, typer.Option("--fetch-size", metavar="BYTES", min=1, help="The most bytes of a partition in a response.")
    ] = FETCH_BYTES,
    from_latest: Annotated[bool, typer.Option("--from-latest", help="Begin at the end of the topic.")] = False,
    timeout: Annotated[
        int, typer.Option("--timeout", metavar="MS", min=1, help="With --messages: how long to wait for new records.")
    ] = 10_000,
    partition: Partitions = None,
    threads: Threads = 1,
    consumer_props: Annotated[
        list[str] | None,
        typer.Option("--consumer-props", metavar="KEY=VALUE", help="A property of Kafka's consumer; may be repeated."),
    ] = None,
    consumer_config: Annotated[
        Path | None, typer.Option("--consumer.config", metavar="FILE", help="A file with such properties.")
    ] = None,
    servers: Servers = DEFAULT_SERVER,
    command_config: CommandConfig = None,
    metrics: Metrics = False,
    interval: Interval = 5000,
    as_json: Json = False,
    plot: Plot = None,
    force: Force = False,
) -> None:
    """Measure how fast a broker serves records, and how long a fetch takes.

    Each client has one request in flight to each broker, for one partition after the other, and does not unpack the
    records; bytes are those of stored batches. Without --messages and --duration, the stored records are read once.
    With --duration, a client that has read everything begins again; with --from-latest, it waits for new records.

    Examples:

        kafkapy bench consume --topic load

        kafkapy bench consume --topic load --duration 30 --threads 4 --fetch-size 65536

        kafkapy bench consume --topic load --messages 1000000 --from-latest --json
    """
    properties = properties_of(
        "--consumer-props",
        consumer_config,
        [*(consumer_props or ()), *(more or ())],
        honoured=_HONOURED,
        known=CONSUMER,
    )
    if not given(context, "servers") and "bootstrap.servers" in properties:
        servers = properties.servers()
    if not given(context, "fetch_size"):
        fetch_size = properties.number("max.partition.fetch.bytes", fetch_size)
    if from_latest and messages is None and duration is None:
        raise CallError("--from-latest needs --messages or --duration: it does not end by itself")
    stop_rules(messages, duration, "--messages")
    output = Output(as_json, plot, force, metrics, interval / 1000)
    output.picture()
    place = Place(servers, security_for(properties, command_config), topic, (), properties.text("client.id"))
    with place.cluster() as cluster:
        found = partitions_of(cluster, topic, partition)
    shares = shares_of(messages, threads)
    jobs = [
        ConsumeJob(
            place.of(its),
            fetch_size,
            share,
            again=duration is not None and messages is None and not from_latest,
            from_latest=from_latest,
            idle_s=timeout / 1000,
        )
        for its, share in zip(shared_out(found, threads), shares, strict=True)
        if share != 0
    ]
    settings = {"topic": topic, "partitions": len(found), "fetchSize": fetch_size, "threads": threads}
    title = f"consume {topic}, fetches of {fetch_size:,} bytes"
    measure(jobs, duration, Measure("consume", title, settings, first="fetch to response"), output)
