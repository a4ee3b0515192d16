"""The command `kafkapy bench commit`: commits of offsets."""

from typing import Annotated

import typer

from kafkapy.client.administration.group_admin import GroupAdmin
from kafkapy.client.cluster import Cluster
from kafkapy.client.errors import ClientError
from kafkapy.errors import Errors
from kafkapy.tools.bench.committing import CommitJob
from kafkapy.tools.bench.figures import Measure
from kafkapy.tools.bench.leaders import Place, shares_of
from kafkapy.tools.bench.options import (
    Create,
    CreatePartitions,
    CreateReplicas,
    Duration,
    Force,
    Interval,
    Metrics,
    Plot,
    Threads,
    Throughput,
    Topic,
    rate_of,
    stop_rules,
)
from kafkapy.tools.bench.report import Output, measure
from kafkapy.tools.bench.topics import partitions_of
from kafkapy.tools.common.errors import CallError, ToolError
from kafkapy.tools.common.options import DEFAULT_SERVER, CommandConfig, Json, Servers, security_of_file
from kafkapy.tools.common.output import counted


def commit(
    topic: Topic,
    num_commits: Annotated[int | None, typer.Option("--num-commits", "-n", help="How many commits to send.")] = None,
    throughput: Throughput = -1,
    duration: Duration = None,
    consumers: Annotated[int, typer.Option("--consumers", "-c", min=1, help="Consumers, each in its own group.")] = 10,
    group: Annotated[
        str, typer.Option("--group", "-g", metavar="PREFIX", help="The groups are PREFIX-0, PREFIX-1 ...")
    ] = "kafkapy-bench",
    keep_groups: Annotated[bool, typer.Option("--keep-groups", help="Do not delete the groups afterwards.")] = False,
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
    """Measure the rate at which a broker takes commits of offsets, and how long a commit takes.

    Each consumer has a connection to the coordinator of its group, and one commit in flight, with an offset of every
    partition of the topic. The groups must not exist before; they are deleted afterwards. Without --num-commits and
    --duration, the clients run for 10 seconds.

    Examples:

        kafkapy bench commit --topic load --create --partitions 5

        kafkapy bench commit --topic load --consumers 100 --threads 2 --duration 30 --json
    """
    seconds = stop_rules(num_commits, duration, "--num-commits")
    asked = rate_of(throughput)
    if threads > consumers:
        raise CallError(f"--threads {threads} is more than --consumers {consumers}: each client needs a consumer")
    output = Output(as_json, plot, force, metrics, interval / 1000)
    output.picture()
    place = Place(servers, security_of_file(command_config), topic, ())
    groups = [f"{group}-{number}" for number in range(consumers)]
    with place.cluster() as cluster:
        found = partitions_of(cluster, topic, create=create, partitions=partitions, replicas=replicas)
        _refuse_existing(cluster, groups)
    jobs = [
        CommitJob(
            place.of(found),
            tuple(groups[number::threads]),
            share,
            None if asked is None else asked / threads,
        )
        for number, share in enumerate(shares_of(num_commits, threads))
    ]
    settings = {
        "topic": topic,
        "partitions": len(found),
        "consumers": consumers,
        "threads": threads,
        "throughput": asked,
    }
    title = f"commits by {counted(consumers, 'consumer')}, {counted(len(found), 'partition')} each"
    what = Measure("commit", title, settings, first="commit to response", unit="commit", asked=asked)
    try:
        measure(jobs, seconds, what, output)
    finally:
        left = None if keep_groups else _delete(place, groups)
    if left is not None:
        raise ToolError(f"not all groups were deleted: {left}")


def _delete(place: Place, groups: list[str]) -> Exception | None:
    """Delete the groups. Return the error of a group that was not deleted, or None if all are gone."""
    try:
        with place.cluster() as cluster:
            errors = GroupAdmin(cluster).delete(groups).values()
    except ClientError as error:
        return error
    return next((one for one in errors if one is not None and one.code != Errors.GROUP_ID_NOT_FOUND), None)


def _refuse_existing(cluster: Cluster, groups: list[str]) -> None:
    """Raise CallError if one of the groups has committed offsets, which the benchmark would overwrite."""
    for name, offsets in GroupAdmin(cluster).offsets(groups).items():
        if isinstance(offsets, dict) and offsets:
            raise CallError(f"group {name} exists already: choose another name with --group, or delete it")
