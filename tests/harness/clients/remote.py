"""Clients in other languages, each a child process that answers each JSON request, a line, with a JSON line.

A request is `{"op": NAME, ...arguments}`, an answer `{"result": ...}` or `{"error": CODE, "message": TEXT}`; keys,
values and header values are base64 or null. The programs are in tests/interop/java, go and node.
"""

import base64
import json
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.harness import toolchain
from tests.harness.clients.base import EVERYTHING, Client, ClientError, Partition, Received, Record

INTEROP = Path(__file__).parents[2] / "interop"
PATIENCE_S = 90.0


class Remote(Client):
    """A client in a child process. Every ability is a request of the same name."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._child = subprocess.Popen(
            self.command(bootstrap), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._complaints: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def command(self, bootstrap: str) -> list[str]:
        """Return the child's command line. Build the program first if needed."""
        raise NotImplementedError

    def _listen(self) -> None:
        assert self._child.stderr is not None
        for line in self._child.stderr:
            self._complaints.append(line)
            del self._complaints[:-200]

    def close(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        try:
            self._child.wait(20)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait(20)

    def _ask(self, op: str, **arguments: Any) -> Any:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        watchdog = threading.Timer(PATIENCE_S, self._child.kill)  # a child that hangs must not hang the suite
        watchdog.start()
        try:
            self._child.stdin.write(json.dumps({"op": op, **arguments}) + "\n")
            self._child.stdin.flush()
            line = self._child.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            raise AssertionError(f"{self.name} died in {op}:\n{''.join(self._complaints)[-4000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise ClientError(answer["error"], f"{self.name}: {answer['message']}")
        return answer["result"]

    def produce(
        self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: int = -1, idempotent: bool = False
    ) -> list[tuple[int, int]]:
        placed = self._ask(
            "produce", topic=topic, codec=codec, acks=acks, idempotent=idempotent, records=_sent(records)
        )
        return [(p, offset) for p, offset in placed]

    def fetch(self, topic: str, start: Mapping[int, int], end: Mapping[int, int]) -> dict[int, list[Received]]:
        got: dict[int, list[Received]] = {p: [] for p in start}
        for received in _received(self._ask("fetch", topic=topic, start=start, end=end)):
            got[received.partition].append(received)
        return got

    def consume(
        self, group: str, topic: str, count: int, patience_s: float, *, by_pattern: bool = False
    ) -> list[Received]:
        asked = {"group": group, "topic": topic, "total": count, "by_pattern": by_pattern}
        return _received(self._ask("consume", **asked, timeout_ms=round(patience_s * 1000)))

    def offsets_for_times(self, topic: str, times: Mapping[int, int]) -> dict[int, int | None]:
        return _by_partition(self._ask("offsets_for_times", topic=topic, times=times))

    def watermarks(self, topic: str, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        response = self._ask("watermarks", topic=topic, partitions=list(partitions))
        return {int(p): (low, high) for p, (low, high) in response.items()}

    def offsets_of_max_timestamp(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        return _by_partition(self._ask("offsets_of_max_timestamp", topic=topic, partitions=list(partitions)))

    def cluster(self) -> dict[str, Any]:
        response = self._ask("cluster")
        return {**response, "nodes": [tuple(node) for node in response["nodes"]]}

    def topic_names(self) -> set[str]:
        return set(self._ask("topic_names"))

    def partitions_of(self, topic: str) -> dict[int, Partition]:
        response = self._ask("partitions_of", topic=topic)
        return {
            int(p): Partition(leader, tuple(replicas), tuple(isr)) for p, (leader, replicas, isr) in response.items()
        }

    def create_topic(
        self, topic: str, partitions: int, configs: Mapping[str, str] | None = None, *, validate_only: bool = False
    ) -> None:
        self._ask(
            "create_topic", topic=topic, partitions=partitions, configs=configs or {}, validate_only=validate_only
        )

    def add_partitions(self, topic: str, total: int) -> None:
        self._ask("add_partitions", topic=topic, total=total)

    def delete_topic(self, topic: str) -> None:
        self._ask("delete_topic", topic=topic)

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        response: dict[str, str | None] = self._ask("topic_configs", topic=topic)
        return response

    def broker_configs(self, broker: int) -> dict[str, str | None]:
        response: dict[str, str | None] = self._ask("broker_configs", broker=str(broker))
        return response

    def set_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        self._ask("set_topic_configs", topic=topic, configs=configs)

    def reset_topic_config(self, topic: str, name: str) -> None:
        self._ask("reset_topic_config", topic=topic, name=name)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        return _by_partition(self._ask("delete_records", topic=topic, before=before))

    def log_dirs(self, topic: str) -> dict[int, int]:
        return _by_partition(self._ask("log_dirs", topic=topic))

    def producers(self, topic: str, partition: int) -> list[dict[str, int]]:
        response: list[dict[str, int]] = self._ask("producers", topic=topic, partition=partition)
        return response

    def elect_leaders(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        return _by_partition(self._ask("elect_leaders", topic=topic, partitions=list(partitions)))

    def read_until(self, topic: str, partitions: Sequence[int], last: bytes, *, committed: bool) -> list[Received]:
        asked = {"topic": topic, "partitions": list(partitions), "last": _pack(last), "committed": committed}
        return _received(self._ask("read_until", **asked))

    def open_transactional(self, name: str, *, timeout_ms: int = 60_000) -> None:
        self._ask("open_transactional", name=name, timeout_ms=timeout_ms)

    def transact(self, name: str, topic: str, records: Sequence[Record], outcome: str) -> None:
        self._ask("transact", name=name, topic=topic, records=_sent(records), outcome=outcome)

    def finish(self, name: str, outcome: str) -> None:
        self._ask("finish", name=name, outcome=outcome)

    def close_transactional(self, name: str) -> None:
        self._ask("close_transactional", name=name)

    def copy_in_transaction(
        self, name: str, group: str, source: str, target: str, count: int, outcome: str
    ) -> list[Received]:
        asked = {"name": name, "group": group, "topic": source, "target": target, "total": count, "outcome": outcome}
        return _received(self._ask("copy_in_transaction", **asked))


def java_command(version: str, main: str) -> list[str]:
    """Return the command that starts a Java program with the clients of a version."""
    classpath = toolchain.maven_classpath(INTEROP / "java" / "pom.xml", version)
    classes = toolchain.java_classes(INTEROP / "java", classpath)
    java = [toolchain.find("java"), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return [*java, quiet, "-cp", f"{classes}:{classpath}", main]


class Java(Remote):
    """The Java clients. The program is compiled against the version that it runs with."""

    version: str

    def command(self, bootstrap: str) -> list[str]:
        return [*java_command(self.version, "kafkapy.interop.Main"), bootstrap]


class Java3(Java):
    name = "java-3.9.1"
    version = "3.9.1"


class Java4(Java):
    name = "java-4.4.0"
    version = "4.4.0"


class FranzGo(Remote):
    name = "franz-go"

    def command(self, bootstrap: str) -> list[str]:
        return [str(toolchain.go_program(INTEROP / "go")), bootstrap]


class KafkaJs(Remote):
    name = "kafkajs"
    codecs = ("none", "gzip")
    expressive = EVERYTHING - {"null_header"}
    lacks = frozenset(
        {"fetch", "offsets_of_max_timestamp", "reset_topic_config", "log_dirs", "producers", "elect_leaders"}
    )

    def command(self, bootstrap: str) -> list[str]:
        return [toolchain.find("node"), str(toolchain.node_modules(INTEROP / "node") / "main.js"), bootstrap]


def _sent(records: Sequence[Record]) -> list[dict[str, Any]]:
    return [
        {
            "key": _pack(r.key),
            "value": _pack(r.value),
            "headers": [[k, _pack(v)] for k, v in r.headers],
            "timestamp": r.timestamp,
            "partition": r.partition,
        }
        for r in records
    ]


def _received(records: list[dict[str, Any]]) -> list[Received]:
    return [
        Received(
            r["partition"],
            r["offset"],
            r["timestamp"],
            _unpack(r["key"]),
            _unpack(r["value"]),
            tuple((k, _unpack(v)) for k, v in r["headers"]),
        )
        for r in records
    ]


def _pack(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _unpack(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)


def _by_partition(response: dict[str, Any]) -> dict[int, Any]:
    return {int(p): value for p, value in response.items()}
