"""What the data sources need: PySpark, PyArrow and a Java runtime, each new enough, and workers with kafkapy; what is
missing is said."""

import importlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

PYSPARK, PYARROW = (4, 0), (11, 0)  # the least that PySpark 4.0 itself takes
JAVA = 17
INSTALL = 'install it with: pip install "kafkapy[spark]"'


class MissingRequirement(ImportError):
    """Its text is a sentence that says what is missing or too old, and how to get it."""


def check_requirements(*, java: bool = False) -> None:
    """Raises MissingRequirement unless the Python packages are there; with `java` also what a session of this machine
    starts, a Java runtime and the Python of its workers."""
    check_package("pyspark", PYSPARK)
    check_package("pyarrow", PYARROW)
    if java:
        check_java()
        check_workers()


def check_package(name: str, least: tuple[int, ...]) -> None:
    """One package. It is imported only where no metadata tell its version: Spark makes many short-lived processes."""
    wanted = ".".join(map(str, least))
    try:
        version = _version(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise MissingRequirement(f"{name} does not work here ({error}); {INSTALL}") from error
        raise MissingRequirement(
            f"kafkapy's Spark sources need {name} {wanted} or newer, which is not installed; {INSTALL}"
        ) from None
    except ImportError as error:
        raise MissingRequirement(f"{name} does not work here ({error}); {INSTALL}") from error
    if tuple(int(part) for part in re.findall(r"\d+", version)[: len(least)]) < least:
        raise MissingRequirement(
            f"kafkapy's Spark sources need {name} {wanted} or newer, and {version} is installed; {INSTALL}"
        )


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:  # PySpark comes with Spark itself, too
        return str(importlib.import_module(name).__version__)


def check_workers() -> None:
    """Whether the Python that Spark starts, to find data sources and to run them, is one with kafkapy."""
    python = os.environ.get("PYSPARK_PYTHON") or "python3"
    look = "import sys; from importlib.util import find_spec; sys.exit(find_spec('kafkapy') is None)"
    try:
        fails = subprocess.run([python, "-c", look], capture_output=True, timeout=60).returncode
        what = "has no kafkapy"
    except (OSError, subprocess.SubprocessError) as error:
        fails, what = 1, f"does not work ({error})"
    if fails:
        said = "PYSPARK_PYTHON" if os.environ.get("PYSPARK_PYTHON") else "as PYSPARK_PYTHON is not set"
        raise MissingRequirement(
            f"Spark runs {python} ({said}), which {what}; set PYSPARK_PYTHON={sys.executable} before the session starts"
        )


def check_java() -> None:
    """The Java runtime that PySpark would start: that of JAVA_HOME, else the one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    remedy = f"install Java {JAVA} or newer (Debian: apt-get install openjdk-{JAVA}-jre-headless)"
    if java is None:
        raise MissingRequirement(f"Spark needs a Java runtime, and there is no program 'java' on the PATH; {remedy}")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=60).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingRequirement(f"Spark needs a Java runtime, and {java} does not work ({error}); {remedy}") from error
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found and int(found[1]) < JAVA:
        raise MissingRequirement(f"Spark needs Java {JAVA} or newer, and {java} is Java {found[1]}; {remedy}")
