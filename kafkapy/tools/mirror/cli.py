"""The command `kafkapy mirror`: copies topics of source clusters into a target cluster, as Kafka's MirrorMaker does."""

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from kafkapy.tools.common.errors import CallError, ToolError

if TYPE_CHECKING:
    from kafkapy.client.original.filters import TopicFilter
    from kafkapy.mirror.options import CreateTopics

CREATE: "tuple[CreateTopics, ...]" = ("source", "target", "never")
LOOK_S = 0.1
INTERRUPTED = 130


def mirror(
    consumer: Annotated[
        list[str],
        typer.Option(
            "--consumer",
            "--consumer.config",
            metavar="FILE",
            help="Consumer properties of a source cluster; may be repeated, or further files given as arguments.",
        ),
    ],
    producer: Annotated[
        str,
        typer.Option(
            "--producer", "--producer.config", metavar="FILE", help="Properties of the target cluster's producer."
        ),
    ],
    more: Annotated[list[str] | None, typer.Argument(metavar="FILE", help="More sources.")] = None,
    whitelist: Annotated[
        str | None,
        typer.Option("--whitelist", "--include", metavar="REGEX", help="Topics whose whole name matches."),
    ] = None,
    blacklist: Annotated[
        str | None, typer.Option("--blacklist", metavar="REGEX", help="All topics but those whose whole name matches.")
    ] = None,
    streams: Annotated[
        int,
        typer.Option("--streams", "--num.streams", min=1, metavar="N", help="Members of the group, for each source."),
    ] = 1,
    interval: Annotated[
        int | None,
        typer.Option(
            "--offset-commit-interval-ms",
            "--offset.commit.interval.ms",
            min=1,
            metavar="MS",
            help="Time between commits; 60000 unless given, with --exactly-once 1000.",
        ),
    ] = None,
    abort: Annotated[
        str,
        typer.Option(
            "--abort-on-send-failure",
            "--abort.on.send.failure",
            metavar="true|false",
            help="false: records that the target rejects are counted, and the mirror continues.",
        ),
    ] = "true",
    keep_partitions: Annotated[
        bool, typer.Option("--keep-partitions", help="Into the partition with the same number, whatever the key.")
    ] = False,
    exactly_once: Annotated[
        bool, typer.Option("--exactly-once", help="Offsets are kept in the target, in the records' transactions.")
    ] = False,
    create_topics: Annotated[
        str,
        typer.Option(
            "--create-topics",
            metavar="source|target|never",
            help="Topics that the target lacks: with the source's partitions, by its auto-creation, or an error.",
        ),
    ] = "source",
    progress: Annotated[
        int, typer.Option("--progress", min=0, metavar="SECONDS", help="Seconds between progress lines; 0: no lines.")
    ] = 10,
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="HOST:PORT", help="Serve Prometheus metrics at this address.")
    ] = None,
    log_level: Annotated[str, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")] = (
        "warning"
    ),
) -> None:
    """Copy topics of one or more clusters into another, until SIGTERM or SIGINT.

    A source with zookeeper.connect is read by a group in ZooKeeper, a source with bootstrap.servers by a group in
    Kafka. Offsets are committed to a source only after the target has acknowledged the records. Topics keep their
    names, and records their keys, values, headers and timestamps.

    Examples:

        kafkapy mirror --consumer old.properties --producer new.properties --whitelist 'orders.*'

        kafkapy mirror --consumer paris.properties berlin.properties --producer all.properties --blacklist 'test.*'

        kafkapy mirror --consumer a.properties --producer b.properties --whitelist orders --exactly-once
    """
    from kafkapy.mirror.counts import Counts
    from kafkapy.mirror.metrics import metrics_page
    from kafkapy.mirror.mirror import Mirror
    from kafkapy.mirror.options import MirrorOptions
    from kafkapy.mirror.source_settings import read_source
    from kafkapy.mirror.target_settings import read_target
    from kafkapy.tools.mirror.progress import MirrorProgress

    topics = _filter(whitelist, blacklist)
    options = MirrorOptions(
        streams=streams,
        commit_interval_s=(interval or (1_000 if exactly_once else 60_000)) / 1000,
        abort_on_send_failure=_true_or_false("--abort-on-send-failure", abort),
        keep_partitions=keep_partitions,
        exactly_once=exactly_once,
        create_topics=_create_topics(create_topics),
    )
    page_at = None if metrics is None else _address(metrics)
    sources = [read_source(_properties(file), file) for file in [*consumer, *(more or ())]]
    target = read_target(_properties(producer), producer)
    _set_up_log(log_level)
    signals: list[int] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        if signals:
            os._exit(INTERRUPTED)
        signals.append(number)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    page = None
    try:
        running = Mirror(sources, target, topics, options)

        def by_source() -> list[tuple[str, Counts]]:
            return [(source.file, counts) for source, counts in running.counts]

        if page_at is not None:
            try:
                page = metrics_page(page_at, by_source)
            except OSError as error:
                raise ToolError(f"--metrics {metrics}: {error.strerror or error}") from None
            print(f"kafkapy: metrics are at http://{page.address}/metrics", file=sys.stderr, flush=True)
        shown = MirrorProgress(progress)
        running.start()
        names = ", ".join(f"{source.file} (group {source.group_id})" for source in sources)
        print(f"kafkapy: mirroring {names} to {producer}", file=sys.stderr, flush=True)
        while not signals and running.failure is None:
            shown.show(by_source())
            time.sleep(LOOK_S)
        try:
            running.stop()
        finally:
            shown.show(by_source(), last=True)
    finally:
        if page is not None:
            page.stop()
        for number, handler in before.items():
            signal.signal(number, handler)


def _filter(whitelist: str | None, blacklist: str | None) -> "TopicFilter":
    from kafkapy.client.original.filters import Blacklist, Whitelist

    if (whitelist is None) == (blacklist is None):
        given = "both are" if whitelist is not None else "none is"
        raise CallError(f"one of --whitelist and --blacklist is needed to say which topics are mirrored; {given} given")
    try:
        return Blacklist(blacklist) if blacklist is not None else Whitelist(whitelist or "")
    except ValueError as error:
        raise CallError(f"{'--blacklist' if whitelist is None else '--whitelist'} {error}") from None


def _properties(file: str) -> dict[str, str]:
    from kafkapy.server.config.properties import load_properties

    try:
        return load_properties(Path(file))
    except OSError as error:
        raise ToolError(f"the properties file {file} cannot be read: {error.strerror}") from None


def _true_or_false(option: str, word: str) -> bool:
    if word.lower() not in ("true", "false"):
        raise CallError(f"{option} {word!r} is neither true nor false")
    return word.lower() == "true"


def _create_topics(word: str) -> "CreateTopics":
    for one in CREATE:
        if one == word:
            return one
    raise CallError(f"--create-topics {word!r} is none of {', '.join(CREATE)}")


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise CallError(f"--metrics {text!r} is not HOST:PORT, as in 127.0.0.1:9404")
    return host.strip("[]"), int(port)


def _set_up_log(level: str) -> None:
    from kafkapy.runtime import logs

    try:
        logs.set_up(level)
    except ValueError as error:
        raise CallError(f"--log-level {error}") from None
