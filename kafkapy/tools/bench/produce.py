"""The command `kafkapy bench produce`, as Kafka's kafka-producer-perf-test."""

import math
from pathlib import Path
from typing import Annotated

import typer

from kafkapy.client.properties import PRODUCER
from kafkapy.record.compression import NAMES
from kafkapy.tools.bench.figures import Measure
from kafkapy.tools.bench.leaders import Place, shared_out, shares_of
from kafkapy.tools.bench.options import (
    Create,
    CreatePartitions,
    CreateReplicas,
    Duration,
    Force,
    Interval,
    Metrics,
    MorePairs,
    Partitions,
    Plot,
    Threads,
    Throughput,
    Topic,
    acks_of,
    properties_of,
    rate_of,
    security_for,
    stop_rules,
)
from kafkapy.tools.bench.producing import Content, ProduceJob
from kafkapy.tools.bench.report import Output, measure
from kafkapy.tools.bench.topics import partitions_of
from kafkapy.tools.common.errors import CallError
from kafkapy.tools.common.options import DEFAULT_SERVER, CommandConfig, Json, Servers, given
from kafkapy.tools.common.output import counted

BATCH_SIZE = 16384  # Kafka's default of batch.size
IN_FLIGHT = 5  # Kafka's default of max.in.flight.requests.per.connection
_OVERHEAD = 16  # bytes of a record, at most, besides key and value
_MOST_BATCH = 64 << 20
_MOST_MEMORY = 512 << 20  # bytes of the encoded requests of a client
_HONOURED = {"acks", "batch.size", "linger.ms", "compression.type", "max.in.flight.requests.per.connection"}
_REFUSED = {"transactional.id": "these clients produce without transactions"}


def produce(
    context: typer.Context,
    topic: Topic,
    more: MorePairs = None,
    num_records: Annotated[
        int | None, typer.Option("--num-records", "-n", help="Records to send, rounded up to whole requests.")
    ] = None,
    record_size: Annotated[
        int, typer.Option("--record-size", "-s", min=0, help="Bytes of each value, random capital letters.")
    ] = 1024,
    payload_file: Annotated[
        Path | None,
        typer.Option("--payload-file", metavar="FILE", help="Values: lines of a file, for up to 100 requests."),
    ] = None,
    throughput: Throughput = -1,
    duration: Duration = None,
    acks: Annotated[str, typer.Option("--acks", "-a", help="all, 1 (the leader) or 0 (no response).")] = "all",
    codec: Annotated[str, typer.Option("--codec", "-z", help=f"Compression: {', '.join(NAMES)}.")] = "none",
    batch_size: Annotated[
        int, typer.Option("--batch-size", metavar="BYTES", min=1, help="A request has one batch of at most this size.")
    ] = BATCH_SIZE,
    in_flight: Annotated[
        int, typer.Option("--in-flight", min=1, help="Requests without a response, for each client and broker.")
    ] = IN_FLIGHT,
    keys: Annotated[int, typer.Option("--keys", min=0, help="How many different keys; 0: records have no key.")] = 0,
    key_size: Annotated[int, typer.Option("--key-size", metavar="BYTES", min=1, help="Bytes of each key.")] = 16,
    partition: Partitions = None,
    threads: Threads = 1,
    create: Create = False,
    partitions: CreatePartitions = -1,
    replicas: CreateReplicas = -1,
    producer_props: Annotated[
        list[str] | None,
        typer.Option("--producer-props", metavar="KEY=VALUE", help="A property of Kafka's producer; may be repeated."),
    ] = None,
    producer_config: Annotated[
        Path | None, typer.Option("--producer.config", metavar="FILE", help="A file with such properties.")
    ] = None,
    servers: Servers = DEFAULT_SERVER,
    command_config: CommandConfig = None,
    metrics: Metrics = False,
    interval: Interval = 5000,
    as_json: Json = False,
    plot: Plot = None,
    force: Force = False,
) -> None:
    """Measure how fast a broker takes records, and how long a request takes.

    Requests are encoded in advance and sent again and again, to the partitions in turn. Keys do not choose the
    partition. The latency is the time from sending a request to its response. With --throughput, a request has the
    records of one millisecond, or of linger.ms if that is longer, and the latency of a request that the broker holds up
    counts from when the request was due. Without --num-records and --duration, the clients run for 10 seconds; Ctrl-C
    ends them and prints the figures so far.

    Examples:

        kafkapy bench produce --topic load --create --partitions 4 --record-size 100 --acks 1

        kafkapy bench produce --topic load --throughput 10000 --duration 60 --plot load.png

        kafkapy bench produce --topic load --num-records 1000000 --producer-props acks=1 batch.size=65536
    """
    properties = properties_of(
        "--producer-props",
        producer_config,
        [*(producer_props or ()), *(more or ())],
        honoured=_HONOURED,
        known=PRODUCER,
        refused=_REFUSED,
    )
    if not given(context, "servers") and "bootstrap.servers" in properties:
        servers = properties.servers()
    if not given(context, "acks"):
        acks = properties.text("acks", acks)
    if not given(context, "codec"):
        codec = properties.text("compression.type", codec)
    if not given(context, "batch_size"):
        batch_size = properties.number("batch.size", batch_size)
    if not given(context, "in_flight"):
        in_flight = properties.number("max.in.flight.requests.per.connection", in_flight)
    needed = acks_of(acks)
    if codec not in NAMES:
        raise CallError(f"--codec {codec!r} is none of {', '.join(NAMES)}")
    if batch_size > _MOST_BATCH:
        raise CallError(f"--batch-size {batch_size:,} is above {_MOST_BATCH:,}: no broker takes such a request")
    if keys and len(str(keys - 1)) > key_size:
        raise CallError(
            f"--key-size {key_size} has no room for {keys:,} different keys: use {len(str(keys - 1))} or more"
        )
    seconds = stop_rules(num_records, duration, "--num-records")
    asked = rate_of(throughput)
    payloads = _payloads(payload_file) if payload_file is not None else ()
    content = Content(record_size, payloads, keys, key_size, NAMES.index(codec))
    records = max(1, batch_size // (content.longest + _OVERHEAD))
    if asked is not None:
        linger_s = max(1, properties.number("linger.ms", 0, least=0)) / 1000
        records = min(records, max(1, int(asked / threads * linger_s)))
    if num_records is not None:
        records = min(records, math.ceil(num_records / threads))
    output = Output(as_json, plot, force, metrics, interval / 1000)
    output.picture()
    place = Place(servers, security_for(properties, command_config), topic, (), properties.text("client.id"))
    with place.cluster() as cluster:
        found = partitions_of(cluster, topic, partition, create=create, partitions=partitions, replicas=replicas)
    memory = content.variants(records) * records * (content.longest + _OVERHEAD) * math.ceil(len(found) / threads)
    if memory > _MOST_MEMORY:
        raise CallError(
            f"the requests of a client for {counted(math.ceil(len(found) / threads), 'partition')} would take "
            f"{memory >> 20:,} MiB: use a smaller --record-size or --batch-size, fewer --keys, or fewer partitions "
            "with --partition"
        )
    requests = None if num_records is None else math.ceil(num_records / records)
    shares = shares_of(requests, threads)
    jobs = [
        ProduceJob(
            place.of(its),
            content,
            records,
            needed,
            in_flight,
            share,
            None if asked is None else asked / records / threads,
        )
        for its, share in zip(shared_out(found, threads), shares, strict=True)
    ]
    settings = {
        "topic": topic,
        "partitions": len(found),
        "acks": acks,
        "codec": codec,
        "recordSize": None if payloads else record_size,
        "recordsPerRequest": records,
        "inFlight": in_flight,
        "threads": threads,
        "throughput": asked,
    }
    title = f"produce to {topic}, acks={acks}, {counted(records, 'record')} a request"
    measure(jobs, seconds, Measure("produce", title, settings, asked=asked), output)


def _payloads(file: Path) -> tuple[bytes, ...]:
    """Return the lines of --payload-file that are not empty."""
    try:
        found = tuple(line for line in file.read_bytes().split(b"\n") if line)
    except OSError as error:
        raise CallError(f"--payload-file {file}: {error.strerror}") from error
    if not found:
        raise CallError(f"--payload-file {file} has no lines")
    return found
