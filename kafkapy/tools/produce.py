"""The command `kafkapy produce`: sends the lines of a file or of standard input as records."""

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from kafkapy.client.producing.record_producer import RecordProducer
from kafkapy.errors import KafkaError
from kafkapy.record.compression import NAMES
from kafkapy.tools.common.errors import CallError, ToolError
from kafkapy.tools.common.options import DEFAULT_SERVER, CommandConfig, Servers, cluster_of
from kafkapy.tools.common.output import progress
from kafkapy.tools.common.record_json import RecordLine, parse_record
from kafkapy.tools.main import sentence_of

ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Lines to send; none or -: standard input.")
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", metavar="TEXT", help="The text between key and value of a line."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Each line is an object with value, key, headers, partition, timestamp.")
    ] = False,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Send all records to this partition.")
    ] = None,
    codec: Annotated[str, typer.Option("--codec", "-z", help=f"Compression: {', '.join(NAMES)}.")] = "none",
    acks: Annotated[
        str, typer.Option("--acks", help="Which replicas must acknowledge a record: all, 1 (the leader) or 0 (none).")
    ] = "all",
    servers: Servers = DEFAULT_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Send lines to a topic, one record per line.

    A key selects the same partition as in Kafka's own clients. With --json, values and keys are strings, null,
    {"base64": "..."} for bytes that are not text, or any other JSON, which is sent as JSON text.

    Examples:

        kafkapy produce greetings words.txt --codec zstd

        printf 'k1:v1\\nk2:v2\\n' | kafkapy produce greetings --key-separator :

        echo '{"key": "k", "value": {"a": 1}, "headers": {"h": "x"}}' | kafkapy produce greetings --json
    """
    if codec not in NAMES:
        raise CallError(f"--codec {codec!r} is none of {', '.join(NAMES)}")
    if acks not in ACKS:
        raise CallError(f"--acks {acks!r} is none of all, 1 and 0")
    if key_separator == "" or (as_json and key_separator is not None):
        raise CallError("--key-separator needs a text, and does not go with --json")
    lines = _Lines(key_separator, as_json, partition)
    began = time.monotonic()
    from_file = file is not None and str(file) != "-"
    with cluster_of(servers, command_config) as cluster:
        producer = RecordProducer(cluster, acks=ACKS[acks], codec=NAMES.index(codec))
        cluster.topic(topic, create=True)
        with _source(file if from_file else None) as source:
            total = os.fstat(source.fileno()).st_size if from_file else None
            with progress(f"Sending to {topic}", total, prints_lines=False) as show:
                count = _send(producer, topic, source, lines, show)
    taken = time.monotonic() - began
    what = f"{count} record{'' if count == 1 else 's'}"
    print(f"{what} {'sent to' if acks == '0' else 'stored in'} {topic} in {taken:.2f} s.")


class _Lines:
    """Parses input lines into records, as the options --json, --key-separator and --partition say."""

    def __init__(self, key_separator: str | None, as_json: bool, partition: int | None) -> None:
        self._separator = None if key_separator is None else key_separator.encode()
        self._as_json = as_json
        self._partition = partition

    def record(self, line: bytes, number: int) -> RecordLine | None:
        """Return the record in a line, which has no line end; None for an empty line between JSON objects. Raises
        ToolError, with the line number, for an invalid line."""
        if self._as_json:
            if not line.strip():
                return None
            record = parse_record(line, number)
            if record.partition is None:
                record = record._replace(partition=self._partition)
            return record
        key = None
        value = line
        if self._separator is not None:
            key, found, value = line.partition(self._separator)
            if not found:
                raise ToolError(f"line {number} has no key: {self._separator.decode()!r} is not in {_shown(line)}")
        return RecordLine(value, key, (), self._partition, None)


def _send(producer: RecordProducer, topic: str, source: BinaryIO, lines: _Lines, show: Callable[[int], None]) -> int:
    """Send all lines as records, and return the number of records. Raises ToolError for an invalid line, or for a
    record that the topic cannot take, after the lines before it have been sent."""
    count = 0
    done = 0
    try:
        for number, line in enumerate(_read_lines(source, producer), 1):
            done += len(line)
            if number % 1024 == 0:
                show(done)
            record = lines.record(line.rstrip(b"\n").removesuffix(b"\r"), number)
            if record is not None:
                try:
                    producer.send(
                        topic,
                        record.value,
                        record.key,
                        headers=record.headers,
                        partition=record.partition,
                        timestamp=record.timestamp,
                    )
                except KafkaError as error:  # such as for a partition that the topic does not have
                    raise ToolError(f"line {number}: {sentence_of(error).rstrip('.')}") from error
                count += 1
    except ToolError as error:
        producer.flush()
        before = "1 record before it was" if count == 1 else f"{count} records before it were"
        raise ToolError(f"{error} (the {before} sent)") from error
    producer.flush()
    return count


def _read_lines(source: BinaryIO, producer: RecordProducer) -> Iterator[bytes]:
    """Yield the lines of `source`, with their line ends, as they arrive. The producer is flushed before each wait for
    input, so that lines that are typed or piped slowly are stored at once."""
    rest: list[bytes] = []
    while True:
        if not select.select([source], [], [], 0)[0]:
            producer.flush()
        chunk = os.read(source.fileno(), 1 << 18)
        if not chunk:
            break
        lines = chunk.split(b"\n")
        if len(lines) > 1:
            yield b"".join([*rest, lines[0], b"\n"])
            for line in lines[1:-1]:
                yield line + b"\n"
            rest.clear()
        rest.append(lines[-1])
    if last := b"".join(rest):
        yield last


def _source(file: Path | None) -> BinaryIO:
    if file is None:
        return open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)
    try:
        return open(file, "rb", buffering=0)
    except OSError as error:
        raise ToolError(f"{file} cannot be read: {error.strerror}") from error


def _shown(line: bytes) -> str:
    text = line.decode("utf-8", "replace")
    return repr(text if len(text) <= 60 else text[:57] + "...")
