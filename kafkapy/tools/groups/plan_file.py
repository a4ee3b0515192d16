"""Reset plans as CSV files in the format of Kafka's ConsumerGroupCommand: `topic,partition,offset` if the command's
arguments name one group, else `group,topic,partition,offset`."""

import csv
import io
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from kafkapy.client.cluster import TopicPartition
from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.common.output import utf_8
from kafkapy.tools.groups.reset_plan import Reset

STANDARD = Path("-")  # standard input or output

_LARGEST = 2**63 - 1


def read_plan(file: Path, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """Return the offsets in a reset plan, by group and partition. Lines without a group belong to the only group in
    `groups`.

    Raises:
        ToolError: the file cannot be read, or a line does not have the format; the message names file and line.
    """
    plan: dict[str, dict[TopicPartition, int]] = {}
    for number, row in enumerate(_rows(file), 1):
        if not row:
            continue
        at = f"{file}, line {number}"
        line = ",".join(row)
        if len(row) == 3 and len(groups) == 1:
            row = [groups[0], *row]
        if len(row) != 4:
            wanted = "TOPIC,PARTITION,OFFSET" if len(groups) == 1 else "GROUP,TOPIC,PARTITION,OFFSET"
            raise ToolError(f"{at}: {line!r} is not {wanted}")
        group, topic = row[0].strip(), row[1].strip()
        partition, offset = _number(at, "partition", row[2]), _number(at, "offset", row[3])
        if not group or not topic:
            raise ToolError(f"{at}: {line!r} has no {'topic' if group else 'group'}")
        its = plan.setdefault(group, {})
        if (topic, partition) in its:
            raise ToolError(f"{at}: {topic}:{partition} of group {group!r} has an offset already in a line above")
        its[topic, partition] = offset
    if not plan:
        raise ToolError(f"{file} has no line TOPIC,PARTITION,OFFSET")
    return plan


def write_plan(file: Path, plan: Iterable[Reset], *, with_group: bool) -> None:
    """Write the new offsets of a reset plan to a CSV file. Names with a comma or a quotation mark are quoted. Raises
    ToolError if the file cannot be written."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for line in plan:
        row = (line.topic, line.partition, line.new)
        writer.writerow((line.group, *row) if with_group else row)
    if file == STANDARD:
        sys.stdout.write(text.getvalue())
        return
    try:
        file.write_bytes(utf_8(text.getvalue()))
    except OSError as error:
        raise ToolError(f"{file} cannot be written: {error.strerror}") from error


def _rows(file: Path) -> list[list[str]]:
    try:
        text = sys.stdin.read() if file == STANDARD else file.read_text(encoding="utf-8")
        return list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except OSError as error:
        raise ToolError(f"{file} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise ToolError(f"{file} is no file of lines TOPIC,PARTITION,OFFSET: {error}") from error


def _number(at: str, what: str, text: str) -> int:
    digits = text.strip()
    if not digits.isascii() or not digits.isdigit() or int(digits) > _LARGEST:
        raise ToolError(f"{at}: {text!r} is no {what}")
    return int(digits)
