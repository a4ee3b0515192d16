"""Fetches jars from Maven Central once into the user's cache: Kafka 3.9.1 and 4.4.0, versions with old clients, and
Spark's own Kafka source."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

KAFKA_VERSION = "3.9.1"
KAFKA_4_VERSION = "4.4.0"
ORIGINAL, LAST_ORIGINAL = "0.8.2.2", "0.10.2.2"  # consumers that rebalance through ZooKeeper; MirrorMaker
SPARK_SOURCE = "spark-source-4.0.0"  # the Kafka source of Spark 4.0.0, without what every pyspark has

# The artifacts for each version: group and artifact, and the version if it is not Kafka's. What they depend on is
# fetched, too, except for SPARK_SOURCE.
NEEDED: dict[str, tuple[tuple[str, ...], ...]] = {
    KAFKA_VERSION: (("org.apache.kafka", "kafka_2.13"), ("org.apache.kafka", "kafka-tools")),
    KAFKA_4_VERSION: (
        ("org.apache.kafka", "kafka_2.13"),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.5"),  # writes the log; Kafka's distribution has it, too
    ),
    ORIGINAL: (("org.apache.kafka", "kafka_2.11"),),
    LAST_ORIGINAL: (("org.apache.kafka", "kafka_2.12"), ("javax.xml.bind", "jaxb-api", "2.3.1")),
    SPARK_SOURCE: (
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.0.0"),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        ("org.apache.kafka", "kafka-clients", "3.9.0"),
        ("org.apache.commons", "commons-pool2", "2.12.0"),
    ),
}


def class_path(version: str = KAFKA_VERSION) -> str:
    """Return the class path of Kafka, its tools, ZooKeeper and their dependencies, for `java -cp`."""
    return f"{fetch(version)}/*"


def cache() -> Path:
    """Return the directory in the user's cache."""
    directory = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafkapy"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def fetch(version: str = KAFKA_VERSION) -> Path:
    """Return the directory with the jars; fetch them if it does not exist. An interrupted fetch does not create it."""
    jars = cache() / (f"{version}-perf" if version == SPARK_SOURCE else f"kafka-{version}-perf")
    if jars.is_dir():
        return jars
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            raise SystemExit(
                f"perf: {tool} is not on the PATH, but needed to run Apache Kafka "
                "(Debian: apt-get install default-jre-headless maven); or measure only kafkapy: --brokers kafkapy"
            )
    with tempfile.TemporaryDirectory(dir=cache(), prefix="fetch-") as scratch:
        (Path(scratch) / "pom.xml").write_text(_pom(version))
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        if version == SPARK_SOURCE:
            command.append("-DexcludeTransitive=true")
        subprocess.run([*command, f"-DoutputDirectory={scratch}/jars"], cwd=scratch, check=True)
        try:
            (Path(scratch) / "jars").rename(jars)
        except OSError:
            if not jars.is_dir():  # otherwise another run has fetched them meanwhile
                raise
    return jars


def _pom(version: str) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{own[0] if own else version}</version></dependency>\n    "
        for group, artifact, *own in NEEDED[version]
    )
    return f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kafkapy</groupId>
  <artifactId>perf-jars</artifactId>
  <version>1</version>
  <dependencies>
    {dependencies}
  </dependencies>
</project>
"""
