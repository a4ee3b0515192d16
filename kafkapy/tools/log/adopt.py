"""The command `kafkapy log adopt`: turns log directories of Apache Kafka into those of a kafkapy broker, without
copying."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from kafkapy.extras import how_to_install
from kafkapy.metadata.ids import encode_id
from kafkapy.server.adoption.adopt import adopt as adopt_dirs
from kafkapy.server.adoption.errors import AdoptionError
from kafkapy.server.adoption.inventory import Inventory, bytes_to_read
from kafkapy.server.adoption.knowledge import Knowledge
from kafkapy.server.adoption.plan import Plan
from kafkapy.server.adoption.settings_file import SettingsFileError, parse_settings
from kafkapy.server.adoption.topic_plan import ALWAYS_SO, NOT_KNOWN, PlannedTopic
from kafkapy.server.adoption.zookeeper import connected, read_cluster
from kafkapy.tools.common.errors import CallError, ToolError
from kafkapy.tools.common.output import print_json, print_table, progress


def adopt(
    dirs: Annotated[
        list[Path], typer.Argument(metavar="DIRECTORY...", help="All of Kafka's log.dirs, in their order.")
    ],
    topic_configs: Annotated[
        Path | None,
        typer.Option("--topic-configs", metavar="FILE", help="Topic settings; - reads standard input."),
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option("--zookeeper", metavar="HOST:PORT/CHROOT", help="Kafka's ZooKeeper, to read topic settings from."),
    ] = None,
    broker_id: Annotated[
        int | None,
        typer.Option(
            "--broker-id", min=0, help="Kafka's broker.id, for directories of Kafka 0.8, which do not contain it."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Turn log directories that Apache Kafka wrote into those of a kafkapy broker.

    Nothing is copied and no segment is changed: one file with the topics is written to the first directory. Stop Kafka
    first. Directories of Kafka 0.8 to 3.9 can be adopted, also of KRaft mode. For those of 0.7 there is `kafkapy log
    import`.

    Topic settings are in ZooKeeper, not in the directories. A topic without given settings keeps all its records, by
    retention.ms=-1, retention.bytes=-1 and cleanup.policy=delete, until you set others. FILE may be JSON
    ({"TOPIC": {"KEY": "VALUE"}}), lines TOPIC/KEY=VALUE, or what kafka-configs.sh or kafka-topics.sh --describe print.

    Examples:

        kafkapy log adopt /var/lib/kafka --zookeeper localhost:2181/kafka

        kafka-configs.sh --bootstrap-server localhost:9092 --describe --entity-type topics > topics.txt

        kafkapy log adopt /data1/kafka /data2/kafka --topic-configs topics.txt --dry-run
    """
    known = _known(zookeeper, topic_configs)
    directories = [path for path in dirs if path.is_dir()]
    try:
        with progress("Looking through the logs", bytes_to_read(directories), prints_lines=False) as show:
            found, plan = adopt_dirs(dirs, known, broker_id=broker_id, dry_run=dry_run, show=show)
    except AdoptionError as error:
        raise ToolError(f"Not adopted: {error}") from error
    if as_json:
        print_json(_as_json(found, plan, adopted=not dry_run))
    else:
        _print_summary(found, plan, dry_run=dry_run)


def _known(zookeeper: str | None, topic_configs: Path | None) -> Knowledge:
    known = Knowledge()
    if zookeeper is not None:
        try:
            with connected(zookeeper) as nodes:
                known = read_cluster(nodes, "ZooKeeper")
        except ModuleNotFoundError as error:
            raise CallError(f"--zookeeper needs the library kazoo: {how_to_install('zookeeper')}") from error
        except AdoptionError as error:
            raise ToolError(str(error)) from error
    if topic_configs is not None:
        name = "standard input" if str(topic_configs) == "-" else str(topic_configs)
        data = sys.stdin.buffer.read() if name == "standard input" else topic_configs.read_bytes()
        try:
            known.add_settings(parse_settings(data.decode("utf-8", "replace")), name)
        except SettingsFileError as error:
            raise ToolError(f"{name} has no topic settings: {error}") from error
    return known


def _print_summary(found: Inventory, plan: Plan, *, dry_run: bool) -> None:
    rows = [
        [topic.name, len(topic.epochs), topic.segments, topic.size, topic.source, _settings(topic)]
        for topic in plan.topics
    ]
    print_table(["topic", "partitions>", "segments>", "bytes>", "from", "settings"], rows)
    mode = ", in KRaft mode" if found.is_kraft else ""
    state = "stopped cleanly" if found.stopped_cleanly else "not stopped cleanly: the first start recovers its logs"
    cluster = "of a cluster without an id" if plan.cluster_id is None else f"of cluster {plan.cluster_id}"
    lines = [
        "",
        f"Broker {plan.broker_id} {cluster}{mode}; {state}.",
        f"New producer ids begin at {plan.last_producer_id + 1}.",
    ]
    if renewed := sum(topic.has_new_id for topic in plan.topics):
        lines.append(f"Topics that had no id, as before Kafka 2.8, and get one: {renewed}.")
    if found.set_aside:
        lines.append(f"Left alone, as Kafka leaves them: {_names(found.set_aside)}.")
    if found.copies:
        lines.append(f"Moves between log directories that the broker continues: {_names(found.copies)}.")
    if found.doomed:
        lines.append(f"Deleted at the first start, as Kafka was about to: {_names(found.doomed)}.")
    lines += [f"Take care: {warning}{'' if warning.endswith('?') else '.'}" for warning in plan.warnings]
    if plan.without_settings:
        lines += _about_settings(plan.without_settings)
    if any(topic.source not in (NOT_KNOWN, ALWAYS_SO) for topic in plan.topics):
        lines += _about_defaults()
    lines += ["", *_what_next(found, dry_run=dry_run)]
    print("\n".join(lines))


def _settings(topic: PlannedTopic) -> str:
    if topic.source == NOT_KNOWN:
        return "keeps all records"
    return ", ".join(f"{key}={value}" for key, value in sorted(topic.settings.items())) or "defaults"


def _names(paths: Sequence[Path]) -> str:
    return ", ".join(str(path) for path in paths)


def _about_settings(names: Sequence[str]) -> list[str]:
    shown = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    return [
        f"Take care: no settings are known of {shown}. Nothing is removed from these topics, or compacted,",
        "until you set what they had, as in",
        f"  kafkapy configs alter --topic {names[0]} --set cleanup.policy=compact",
        f"  kafkapy configs alter --topic {names[0]} --set retention.ms=604800000",
    ]


def _about_defaults() -> list[str]:
    return [
        "Take care: where a topic has no setting of its own, the broker's setting holds, such as log.retention.hours.",
        "If Kafka's server.properties has other values than the defaults, start with that file.",
    ]


def _what_next(found: Inventory, *, dry_run: bool) -> list[str]:
    dirs = ",".join(map(str, found.dirs))
    if dry_run:
        return ["Nothing was changed. To adopt, stop Kafka and run this without --dry-run."]
    return [
        f"Adopted. Start a broker with   kafkapy start -o log.dirs={dirs}",
        "or, for Kafka's own settings,   kafkapy start server.properties -o zookeeper.connect=",
        "Until that is done, Kafka can still be started on them as before.",
    ]


def _as_json(found: Inventory, plan: Plan, *, adopted: bool) -> dict[str, Any]:
    return {
        "adopted": adopted,
        "directories": list(map(str, found.dirs)),
        "brokerId": plan.broker_id,
        "clusterId": plan.cluster_id,
        "kraft": found.is_kraft,
        "stoppedCleanly": found.stopped_cleanly,
        "firstProducerId": plan.last_producer_id + 1,
        "topics": [
            {
                "topic": topic.name,
                "topicId": encode_id(topic.id),
                "newId": topic.has_new_id,
                "leaderEpochs": topic.epochs,
                "missingPartitions": topic.missing,
                "bytes": topic.size,
                "settings": topic.settings,
                "settingsFrom": topic.source,
            }
            for topic in plan.topics
        ],
        "leftAlone": list(map(str, found.set_aside)),
        "movesToContinue": list(map(str, found.copies)),
        "toBeDeleted": list(map(str, found.doomed)),
        "warnings": plan.warnings,
    }
