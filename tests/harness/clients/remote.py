"""Clients in other languages: one child process each, a JSON request a line in, a JSON answer a line out.

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

from harness import toolchain
from harness.clients.base import EVERYTHING, Client, ClientError, Partition, Received, Record

INTEROP = Path(__file__).parents[2] / "interop"
PATIENCE_S = 90.0


class Remote(Client):
    """Speaks to the child; every ability is a request of the same name."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._child = subprocess.Popen(
            self.command(bootstrap), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._complaints: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def command(self, bootstrap: str) -> list[str]:
        """The child's command line; builds it first where that is needed."""
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
        packed = [
            {
                "key": _pack(r.key),
                "value": _pack(r.value),
                "headers": [[k, _pack(v)] for k, v in r.headers],
                "timestamp": r.timestamp,
                "partition": r.partition,
            }
            for r in records
        ]
        placed = self._ask("produce", topic=topic, codec=codec, acks=acks, idempotent=idempotent, records=packed)
        return [(p, offset) for p, offset in placed]

    def fetch(self, topic: str, start: Mapping[int, int], end: Mapping[int, int]) -> dict[int, list[Received]]:
        got: dict[int, list[Received]] = {p: [] for p in start}
        for r in self._ask("fetch", topic=topic, start=start, end=end):
            headers = tuple((k, _unpack(v)) for k, v in r["headers"])
            key, value = _unpack(r["key"]), _unpack(r["value"])
            got[r["partition"]].append(Received(r["partition"], r["offset"], r["timestamp"], key, value, headers))
        return got

    def offsets_for_times(self, topic: str, times: Mapping[int, int]) -> dict[int, int | None]:
        return _by_partition(self._ask("offsets_for_times", topic=topic, times=times))

    def watermarks(self, topic: str, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        told = self._ask("watermarks", topic=topic, partitions=list(partitions))
        return {int(p): (low, high) for p, (low, high) in told.items()}

    def offsets_of_max_timestamp(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        return _by_partition(self._ask("offsets_of_max_timestamp", topic=topic, partitions=list(partitions)))

    def cluster(self) -> dict[str, Any]:
        told = self._ask("cluster")
        return {**told, "nodes": [tuple(node) for node in told["nodes"]]}

    def topic_names(self) -> set[str]:
        return set(self._ask("topic_names"))

    def partitions_of(self, topic: str) -> dict[int, Partition]:
        told = self._ask("partitions_of", topic=topic)
        return {int(p): Partition(leader, tuple(replicas), tuple(isr)) for p, (leader, replicas, isr) in told.items()}

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
        told: dict[str, str | None] = self._ask("topic_configs", topic=topic)
        return told

    def broker_configs(self, broker: int) -> dict[str, str | None]:
        told: dict[str, str | None] = self._ask("broker_configs", broker=str(broker))
        return told

    def set_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        self._ask("set_topic_configs", topic=topic, configs=configs)

    def reset_topic_config(self, topic: str, name: str) -> None:
        self._ask("reset_topic_config", topic=topic, name=name)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        return _by_partition(self._ask("delete_records", topic=topic, before=before))

    def log_dirs(self, topic: str) -> dict[int, int]:
        return _by_partition(self._ask("log_dirs", topic=topic))

    def producers(self, topic: str, partition: int) -> list[dict[str, int]]:
        told: list[dict[str, int]] = self._ask("producers", topic=topic, partition=partition)
        return told

    def elect_leaders(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        return _by_partition(self._ask("elect_leaders", topic=topic, partitions=list(partitions)))


class Java(Remote):
    """The Java clients; the program is compiled against the version it runs with."""

    version: str

    def command(self, bootstrap: str) -> list[str]:
        classpath = toolchain.maven_classpath(INTEROP / "java" / "pom.xml", self.version)
        classes = toolchain.java_classes(INTEROP / "java", classpath)
        java = [toolchain.find("java"), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        return [*java, quiet, "-cp", f"{classes}:{classpath}", "kafkapy.interop.Main", bootstrap]


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


def _pack(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _unpack(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)


def _by_partition(told: dict[str, Any]) -> dict[int, Any]:
    return {int(p): value for p, value in told.items()}
