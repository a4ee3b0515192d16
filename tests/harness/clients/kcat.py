"""kcat, the command line of librdkafka, which is run once for each call."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.harness import toolchain
from tests.harness.clients.base import Client, ClientError, Partition, Received, Record

# The format of a record in a consumer's output, with the lengths first, so that any bytes can follow.
FORMAT = "%p %o %T %K %S %h\\n%k%s\\n"
BETWEEN_KEY_AND_VALUE, BETWEEN_RECORDS = "\x1f", "\x1e"


class Kcat(Client):
    name = "kcat"
    expressive = frozenset({"repeated_header", "nothing"})

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._kcat = toolchain.find("kcat")

    def _run(self, *arguments: str) -> tuple[bytes, str]:
        done = subprocess.run(
            [self._kcat, "-b", self.bootstrap, *arguments], capture_output=True, timeout=90, check=False
        )
        errors = done.stderr.decode(errors="replace")
        if done.returncode:
            raise ClientError(-1, errors)
        return done.stdout, errors

    def produce(
        self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: int = -1, idempotent: bool = False
    ) -> list[tuple[int, int]]:
        settings = ["-z", codec, "-X", f"acks={acks}", "-X", f"enable.idempotence={str(idempotent).lower()}"]
        settings += ["-X", "message.max.bytes=8388608", "-X", "linger.ms=5", "-vvv", "-Z"]
        placed = [(-1, -1)] * len(records)
        # Headers and the partition are options of a run, so a run sends records of one partition with equal headers.
        in_order = sorted(range(len(records)), key=lambda i: -1 if (p := records[i].partition) is None else p)
        with TemporaryDirectory() as directory:
            for common, run in groupby(in_order, lambda i: (records[i].headers, records[i].partition)):
                indexes = list(run)
                self._produce_run(topic, [records[i] for i in indexes], settings, Path(directory) / "records")
                if common[1] is not None:
                    for i in indexes:
                        placed[i] = (common[1], -1)
        return placed

    def _produce_run(self, topic: str, records: Sequence[Record], settings: Sequence[str], file: Path) -> None:
        shared = [word for k, v in records[0].headers for word in ("-H", f"{k}={(v or b'').decode()}")]
        if records[0].partition is not None:
            shared += ["-p", str(records[0].partition)]
        if any(len(record.value or b"") > 4096 for record in records):  # too long for a line, but not for a file
            assert len({record.key for record in records}) == 1, "kcat gives all records from files one key"
            files = [file.with_name(str(number)) for number in range(len(records))]
            for each, record in zip(files, records, strict=True):
                each.write_bytes(record.value or b"")
            how = ["-k", records[0].key.decode()] if records[0].key else []
            how += map(str, files)
        else:
            lines = [(r.key or b"") + BETWEEN_KEY_AND_VALUE.encode() + (r.value or b"") for r in records]
            file.write_bytes(BETWEEN_RECORDS.encode().join(lines))
            how = ["-K", BETWEEN_KEY_AND_VALUE, "-D", BETWEEN_RECORDS, "-l", str(file)]
        _, output = self._run("-P", "-t", topic, *settings, *shared, *how)
        delivered = output.count("Message delivered to partition")
        assert delivered == len(records), f"kcat delivered {delivered} of {len(records)}: {output[-2000:]}"

    def fetch(self, topic: str, start: Mapping[int, int], end: Mapping[int, int]) -> dict[int, list[Received]]:
        got: dict[int, list[Received]] = {}
        for p in start:
            count = end[p] - start[p]
            got[p] = []
            if count:
                options = ["-p", str(p), "-o", str(start[p]), "-c", str(count), "-e", "-f", FORMAT]
                options += ["-X", "auto.offset.reset=error"]
                output, _ = self._run("-C", "-q", "-t", topic, *options)
                got[p] = list(_records(output))
        return got

    def read_until(self, topic: str, partitions: Sequence[int], last: bytes, *, committed: bool) -> list[Received]:
        isolation = "read_committed" if committed else "read_uncommitted"
        options = ["-o", "beginning", "-e", "-f", FORMAT, "-X", f"isolation.level={isolation}"]
        output, _ = self._run("-C", "-q", "-t", topic, *options)  # reads to the end of all partitions
        return list(_records(output))

    def offsets_for_times(self, topic: str, times: Mapping[int, int]) -> dict[int, int | None]:
        output, _ = self._run("-Q", *(word for p, at in times.items() for word in ("-t", f"{topic}:{p}:{at}")))
        found = re.findall(r"\[(\d+)\] offset (-?\d+)", output.decode())
        return {int(p): int(offset) if int(offset) >= 0 else None for p, offset in found}

    def _metadata(self, *arguments: str) -> dict[str, Any]:
        output, _ = self._run("-L", "-J", *arguments)
        response: dict[str, Any] = json.loads(output)
        return response

    def cluster(self) -> dict[str, Any]:
        response = self._metadata()
        nodes = [(each["id"], *each["name"].rsplit(":", 1)) for each in response["brokers"]]
        return {
            "cluster_id": None,
            "controller": response["controllerid"],
            "nodes": [(number, host, int(port)) for number, host, port in nodes],
        }

    def topic_names(self) -> set[str]:
        return {each["topic"] for each in self._metadata()["topics"]}

    def partitions_of(self, topic: str) -> dict[int, Partition]:
        (response,) = self._metadata("-t", topic)["topics"]
        return {
            p["partition"]: Partition(
                p["leader"], tuple(each["id"] for each in p["replicas"]), tuple(each["id"] for each in p["isrs"])
            )
            for p in response["partitions"]
        }


def _records(output: bytes) -> Iterator[Received]:
    position = 0
    while position < len(output):
        line_end = output.index(b"\n", position)
        partition, offset, timestamp, key_length, value_length, *headers = output[position:line_end].split(b" ", 5)
        key_end = line_end + 1 + max(int(key_length), 0)
        value_end = key_end + max(int(value_length), 0)
        yield Received(
            int(partition),
            int(offset),
            int(timestamp),
            None if int(key_length) < 0 else output[line_end + 1 : key_end],
            None if int(value_length) < 0 else output[key_end:value_end],
            tuple(_headers(headers[0].decode())) if headers else (),
        )
        position = value_end + 1


def _headers(text: str) -> Iterator[tuple[str, bytes | None]]:
    for each in filter(None, text.split(",")):
        key, _, value = each.partition("=")
        yield key, None if value == "NULL" else value.encode()
