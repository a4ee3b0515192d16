"""Settings of a small Spark session for tests. Drivers in their own processes are in `perf`."""

from pathlib import Path

from perf import spark_driver
from tests.harness import toolchain

TESTS = Path(__file__).parents[1]
OWN_SOURCE_POM = TESTS / "spark" / "own" / "pom.xml"
OWN_SOURCE_KAFKA = "3.9.0"  # the version of kafka-clients that Spark 4.0.0 requires
SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # settings for a JVM that runs only shortly


def settings(directory: Path, master: str = "local[2]", **more: str) -> dict[str, str]:
    """Return the settings of a small session that listens only on 127.0.0.1 and writes only below `directory`.

    `more` are further settings, with underscores for dots (spark_executor_memory="1g"). Raises MissingTool if Java is
    missing.
    """
    toolchain.find("java")
    small = {
        "spark_master": master,
        "spark_driver_memory": "1g",
        "spark_driver_extraJavaOptions": f"-Djava.io.tmpdir={directory / 'spark'} {SHORT_LIVED}",
        "spark_executor_extraJavaOptions": SHORT_LIVED,
    }
    return spark_driver.settings(directory, **(small | more))


def own_source_jars() -> str:
    """Return the jars of Spark's own Kafka source 4.0.0 and its dependencies, for `spark.jars`."""
    return toolchain.maven_classpath(OWN_SOURCE_POM, OWN_SOURCE_KAFKA).replace(":", ",")
