"""Prints the tables of `kafkapy groups`, from the same documents that `--json` prints."""

from collections.abc import Sequence
from typing import Any

from kafkapy.runtime.printable import printable
from kafkapy.tools.common.output import counted, print_table
from kafkapy.tools.common.partition_ranges import partitions_text
from kafkapy.tools.groups.interface import DescribedGroup, Document


def print_listing(groups: Sequence[Document]) -> None:
    """Print a table with a line for each group. `groups` is the result of `GroupBackend.listing`, and must not be
    empty."""
    if "members" in groups[0]:
        print_table(["group", "members>"], [(group["group"], len(group["members"])) for group in groups])
        return
    print_table(
        ["group", "state", "type", "protocol type", "coordinator>"],
        [(g["group"], g["state"], g["type"], g["protocolType"] or "-", g["coordinator"]) for g in groups],
    )


def print_states(groups: Sequence[DescribedGroup]) -> None:
    """Print a table with a line for each group: its state, protocol type, assignor, number of members and
    coordinator."""
    rows = []
    for group, coordinator in groups:
        protocol = (group["protocolType"] or "-", group["assignor"] or "-")
        rows.append((group["group"], group["state"], *protocol, len(group["members"]), coordinator))
    print_table(["group", "state", "protocol type", "assignor", "members>", "coordinator"], rows)


def print_offsets(described: DescribedGroup) -> None:
    """Print the committed offsets of a group, with the lag and the owner of each partition."""
    group, offsets = described.document, described.document["offsets"]
    lags = [one["lag"] for one in offsets if one["lag"] is not None]
    print(f"{_title(described)}{f', lag {sum(lags):,}' if lags else ''}")
    if not offsets:
        print("It has committed nothing, and nothing is assigned to it.")
        return
    columns = ["topic", "partition>", "committed>", "end>", "lag>"]
    rows: list[list[object]] = [
        [one["topic"], one["partition"], *(_dash(one[key]) for key in ("committed", "end", "lag"))] for one in offsets
    ]
    if "inZooKeeper" in offsets[0]:
        columns.append("kept in")
        for row, one in zip(rows, offsets, strict=True):
            row.append(_kept_in(one["inZooKeeper"], one["inKafka"]))
    if any(one.get("owner") for one in offsets):
        columns.append("owner")
        for row, one in zip(rows, offsets, strict=True):
            row.append(_dash(one["owner"]))
    if any(one.get("member") for one in offsets):
        columns += ["member", "host", "client id"]
        members = {member["member"]: member for member in group["members"]}
        for row, one in zip(rows, offsets, strict=True):
            member = members.get(one["member"])
            row += [member[key] for key in ("member", "host", "clientId")] if member else ["-", "-", "-"]
    print_table(columns, rows)


def print_members(described: DescribedGroup) -> None:
    """Print the members of a group with the partitions assigned to each."""
    print(_title(described))
    members = described.document["members"]
    if not members:
        return
    if "subscription" in members[0]:
        columns = ["member", "subscription"]
        rows = [[member["member"], _subscription(member["subscription"])] for member in members]
    else:
        columns = ["member", "instance id", "host", "client id"]
        rows = [[m["member"], _dash(m["instanceId"]), m["host"], m["clientId"]] for m in members]
    for row, member in zip(rows, members, strict=True):
        partitions = member["partitions"]
        row += [_dash(None if partitions is None else len(partitions)), _partitions(partitions or ())]
    print_table([*columns, "partitions>", "assignment"], rows)


def _title(described: DescribedGroup) -> str:
    group, coordinator = described
    parts = [group["state"]] if "state" in group else []
    parts.append(counted(len(group["members"]), "member") if group["members"] else "no members")
    if group.get("assignor"):
        parts.append(f"{group['assignor']} assignor")
    if coordinator is not None:
        parts.append(f"coordinator {coordinator}")
    return printable(f"Group {group['group']}: {', '.join(parts)}")


def _kept_in(zookeeper: int | None, kafka: int | None) -> str:
    """Return text that says where an offset is committed. If ZooKeeper and Kafka have different offsets, the larger one
    counts, and the other is in brackets."""
    if zookeeper is None or kafka is None:
        return "ZooKeeper" if zookeeper is not None else "Kafka" if kafka is not None else "-"
    if zookeeper == kafka:
        return "both"
    first, other = ("ZooKeeper", "Kafka") if zookeeper > kafka else ("Kafka", "ZooKeeper")
    return f"{first} ({other}: {min(zookeeper, kafka)})"


def _partitions(partitions: Sequence[Document]) -> str:
    if all(isinstance(one["partition"], int) for one in partitions):
        return partitions_text((one["topic"], one["partition"]) for one in partitions)
    by_topic: dict[str, list[str]] = {}
    for one in partitions:  # of Kafka 0.7: BROKER-NUMBER
        by_topic.setdefault(one["topic"], []).append(str(one["partition"]))
    return " ".join(f"{topic}:{','.join(names)}" for topic, names in by_topic.items())


def _subscription(wanted: dict[str, Any] | None) -> str:
    """Return a member's subscription as text: the number of streams of each topic, or of all topics that a filter
    allows."""
    if wanted is None:
        return "cannot be read"
    if wanted["pattern"] == "static":
        return " ".join(f"{topic} ({counted(count, 'stream')})" for topic, count in wanted["topics"].items()) or "-"
    return f"{wanted['pattern'].replace('_', ' ')} {wanted['regex']} ({counted(wanted['streams'], 'stream')})"


def _dash(value: object) -> object:
    return "-" if value is None else value
