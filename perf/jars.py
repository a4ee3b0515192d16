"""Apache Kafka's jars from Maven Central, fetched once into the user's cache directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

KAFKA_VERSION = "3.9.1"

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kafkapy</groupId>
  <artifactId>perf-jars</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{KAFKA_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


def class_path() -> str:
    """For `java -cp`: Kafka, its tools, ZooKeeper and what they need."""
    return f"{fetch()}/*"


def fetch() -> Path:
    """The directory with the jars. A fetch that is cut off leaves nothing behind that looks complete."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafkapy"
    jars = cache / f"kafka-{KAFKA_VERSION}-perf"
    if jars.is_dir():
        return jars
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            raise SystemExit(
                f"perf: {tool} is needed to run Apache Kafka beside kafkapy and is not on the PATH "
                "(Debian: apt-get install default-jre-headless maven); or measure kafkapy alone: --brokers kafkapy"
            )
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="fetch-") as scratch:
        (Path(scratch) / "pom.xml").write_text(POM)
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        subprocess.run([*command, f"-DoutputDirectory={scratch}/jars"], cwd=scratch, check=True)
        try:
            (Path(scratch) / "jars").rename(jars)
        except OSError:
            if not jars.is_dir():  # else another run was first
                raise
    return jars
