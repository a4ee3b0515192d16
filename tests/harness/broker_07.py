"""A broker of Kafka 0.7 that uses a running ZooKeeper.

There is no published artifact of Kafka 0.7, so tests use kafkapy itself: `Broker07` is a broker of this process that
serves 0.7's protocol, logs and registry. With KAFKAPY_KAFKA_07, the class path of a Kafka 0.7.2 built from source,
tests run with that broker as well.

Its core (tag kafka-0.7.2-incubating-candidate-5) compiles with Scala 2.11.12 on Java 17, with scala-actors 2.11.12,
zkclient 0.3, jopt-simple 3.2, log4j 1.2.17 and snappy-java 1.1, after these changes: `position()` and `limit()` of
buffers with parentheses; `asScalaSet`, `seqAsJavaList`, `asScalaBuffer`, `mapAsScalaMap`, `collectionAsScalaIterable`
for the old names of JavaConversions; `indexWhere` for `findIndexOf` and `iterator` for `elements`; an import of
scala.annotation in Annotations.scala; and a loop over the entries for `props.putAll` in ProducerPool.scala.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from kazoo.client import KazooClient

from kafkapy.server.broker import BrokerServer
from kafkapy.server.config.broker_config import BrokerConfig
from tests.harness import toolchain
from tests.harness.brokers import LOG4J, Process, free_port
from tests.harness.waiting import eventually

BROKER_ID = 8
REGISTERED = f"/brokers/ids/{BROKER_ID}"
TOPICS = "/brokers/topics"
REAL = os.environ.get("KAFKAPY_KAFKA_07", "")


def start_broker_07(
    directory: Path,
    zookeeper: str,
    counts: Mapping[str, int],
    *,
    port: int | None = None,
    kind: "type[Broker07] | type[RealBroker07] | None" = None,
) -> "AnyBroker07":
    """Start a broker of this kind, by default kafkapy, on 127.0.0.1 with the logs in `directory`.

    `counts` has numbers of partitions, by default one. The broker and the topics are registered in ZooKeeper when this
    returns."""
    keeper = KazooClient(zookeeper)
    keeper.start()
    eventually(lambda: not keeper.exists(REGISTERED))  # the node of a killed broker
    broker = (kind or Broker07)(directory, zookeeper, counts, port or free_port())
    wanted = [REGISTERED, *(f"{TOPICS}/{topic}/{BROKER_ID}" for topic in _topics_in(directory))]
    eventually(lambda: all(keeper.exists(path) for path in wanted), seconds=60)
    keeper.stop()
    keeper.close()
    return broker


def _topics_in(directory: Path) -> set[str]:
    return {path.name.rpartition("-")[0] for path in directory.glob("*-*")}


def write_properties(directory: Path, zookeeper: str, counts: Mapping[str, int], port: int, **settings: str) -> Path:
    """Write a server.properties of Kafka 0.7 beside the directory of its logs, and return its path. Names of `settings`
    have underscores for dots."""
    lines = {
        "brokerid": str(BROKER_ID),
        "hostname": "127.0.0.1",
        "port": str(port),
        "zk.connect": zookeeper,
        "zk.sessiontimeout.ms": "2000",
        "log.dir": str(directory),
        "topic.partition.count.map": ",".join(f"{topic}:{count}" for topic, count in counts.items()),
        "log.flush.interval": "1",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    path = directory.with_name(f"{directory.name}.properties")
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items() if value))
    return path


class RealBroker07:
    def __init__(self, directory: Path, zookeeper: str, counts: Mapping[str, int], port: int, **settings: str) -> None:
        self.port = port
        properties = write_properties(directory, zookeeper, counts, port, **settings)
        log4j = directory.with_name(f"{directory.name}.log4j")
        log4j.write_text(LOG4J)
        java = [toolchain.find("java"), "-Xmx128m", "-XX:TieredStopAtLevel=1", f"-Dlog4j.configuration=file:{log4j}"]
        log = directory.with_name(f"{directory.name}.log")
        self.process = Process([*java, "-cp", REAL, "kafka.Kafka", str(properties)], log)

    def stop(self) -> None:
        self.process.stop()

    def kill(self) -> None:
        self.process.kill()


class Broker07:
    """kafkapy, in this process."""

    def __init__(self, directory: Path, zookeeper: str, counts: Mapping[str, int], port: int, **settings: str) -> None:
        self.port = port
        self.server = BrokerServer(
            BrokerConfig(
                {
                    "log.dirs": str(directory.with_name(f"{directory.name}-of-later-kafka")),
                    "listeners": "PLAINTEXT://127.0.0.1:0",
                    "kafkapy.kafka07.properties": str(write_properties(directory, zookeeper, counts, port, **settings)),
                }
            )
        )
        self.server.start()

    def stop(self) -> None:
        self.server.stop()

    kill = stop


AnyBroker07 = Broker07 | RealBroker07
KINDS: list[type[Broker07] | type[RealBroker07]] = [Broker07, RealBroker07] if REAL else [Broker07]
