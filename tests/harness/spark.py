"""Spark for the tests: the settings of a small session."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from harness import toolchain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession  # importing it takes a second


def settings(directory: Path, master: str = "local[2]", **more: str) -> dict[str, str]:
    """A session that needs little and listens on 127.0.0.1 only; what it writes goes below `directory`.

    `more` are further settings, with underscores for dots (spark_executor_memory="1g").
    """
    scratch = directory / "spark"
    scratch.mkdir(parents=True, exist_ok=True)
    return {
        "spark.master": master,
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch} -XX:+UseSerialGC",
        "spark.local.dir": str(scratch),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def session(settings: Mapping[str, str]) -> "SparkSession":
    """A running SparkSession of this process, which must have none."""
    toolchain.find("java")
    from pyspark.sql import SparkSession

    assert SparkSession.getActiveSession() is None, "there is a session, whose settings would stay"
    os.environ["PYSPARK_PYTHON"] = sys.executable  # the only place that the driver looks at when it is Python
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # else it warns of a host name that leads nowhere
    builder = SparkSession.builder.appName("kafkapy tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    running = builder.getOrCreate()
    running.sparkContext.setLogLevel("ERROR")
    return running
