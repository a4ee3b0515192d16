"""A broker of Apache Kafka 0.8.2.2 or 0.10.2.2 that uses a running ZooKeeper."""

import re
from pathlib import Path

from tests.harness import toolchain
from tests.harness.brokers import LOG4J, Process, free_port

OLD = Path(__file__).parents[1] / "interop" / "old"


class Kafka08Broker:
    """A broker with default settings on 127.0.0.1; it creates topics with three partitions at their first use."""

    def __init__(self, directory: Path, zookeeper: str, version: str = "0.8.2.2") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        settings = {
            "broker.id": "8",
            "host.name": "127.0.0.1",
            "port": str(self.port),
            "zookeeper.connect": zookeeper,
            "log.dirs": str(directory / "data"),
            "num.partitions": "3",
        }
        properties = directory / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        (directory / "log4j.properties").write_text(LOG4J)
        java = [toolchain.find("java"), "-Xmx256m", "-XX:TieredStopAtLevel=1"]
        java += [f"-Dlog4j.configuration=file:{directory}/log4j.properties"]
        java += ["-cp", toolchain.maven_classpath(OLD / f"pom-{version}.xml", version)]
        self.process = Process([*java, "kafka.Kafka", str(properties)], directory / "kafka.log")
        self.process.wait_for_line(re.compile(r" started \(kafka\.server\.KafkaServer\)"), 90)

    def stop(self) -> None:
        self.process.stop()
