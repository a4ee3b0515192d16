"""The command `kafkapy bench latency`, as Kafka's kafka-e2e-latency."""

from typing import Annotated

import typer

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
    Partitions,
    Plot,
    Threads,
    Throughput,
    Topic,
    acks_of,
    rate_of,
    stop_rules,
)
from kafkapy.tools.bench.producing import Content
from kafkapy.tools.bench.report import Output, measure
from kafkapy.tools.bench.round_trips import RoundTripJob
from kafkapy.tools.bench.topics import partitions_of
from kafkapy.tools.common.errors import CallError
from kafkapy.tools.common.options import DEFAULT_SERVER, CommandConfig, Json, Servers, security_of_file


def latency(
    topic: Topic,
    num_records: Annotated[int | None, typer.Option("--num-records", "-n", help="How many records to send.")] = None,
    record_size: Annotated[int, typer.Option("--record-size", "-s", min=0, help="Bytes of each value.")] = 100,
    throughput: Throughput = -1,
    duration: Duration = None,
    acks: Annotated[str, typer.Option("--acks", "-a", help="all, or 1 (the leader).")] = "all",
    partition: Partitions = None,
    threads: Threads = 1,
    create: Create = False,
    partitions: CreatePartitions = -1,
    replicas: CreateReplicas = -1,
    servers: Servers = DEFAULT_SERVER,
    command_config: CommandConfig = None,
    metrics: Metrics = False,
    interval: Interval = 5000,
    as_json: Json = False,
    plot: Plot = None,
    force: Force = False,
) -> None:
    """Measure how long a record takes from a producer through the broker to a consumer that waits for it.

    Each client sends one record after the other to one partition: the next one follows when the producer has the
    acknowledgement and the consumer the record, or later, with --throughput. Without --num-records and --duration, the
    clients run for 10 seconds.

    Examples:

        kafkapy bench latency --topic load --create

        kafkapy bench latency --topic load --num-records 10000 --acks 1 --record-size 1024

        kafkapy bench latency --topic load --throughput 500 --duration 60 --json
    """
    seconds = stop_rules(num_records, duration, "--num-records")
    asked = rate_of(throughput)
    if acks_of(acks) == 0:
        raise CallError("--acks 0 has no acknowledgement to measure: use all or 1")
    output = Output(as_json, plot, force, metrics, interval / 1000)
    output.picture()
    place = Place(servers, security_of_file(command_config), topic, ())
    with place.cluster() as cluster:
        found = partitions_of(cluster, topic, partition, create=create, partitions=partitions, replicas=replicas)
    shares = shares_of(num_records, threads)
    jobs = [
        RoundTripJob(
            place.of(its[:1]),
            Content(record_size),
            acks_of(acks),
            share,
            None if asked is None else asked / threads,
        )
        for its, share in zip(shared_out(found, threads), shares, strict=True)
        if share != 0
    ]
    settings = {
        "topic": topic,
        "partitions": len({job.place.partitions for job in jobs}),
        "acks": acks,
        "recordSize": record_size,
        "threads": threads,
        "throughput": asked,
    }
    what = Measure(
        "latency",
        f"latency through {topic}, acks={acks}, {record_size:,} bytes",
        settings,
        first="producer to consumer",
        second="producer to acknowledgement",
        asked=asked,
    )
    measure(jobs, seconds, what, output)
