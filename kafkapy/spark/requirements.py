"""Checks that PySpark, PyArrow, Java, and kafkapy in the workers' Python are installed, which the data sources need."""

import importlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from kafkapy.extras import how_to_install

PYSPARK, PYARROW = (4, 0), (11, 0)  # the minimum versions of PySpark 4.0 itself
JAVA = 17
INSTALL = how_to_install("spark")


class MissingRequirement(ImportError):
    """The error for a requirement that is missing or too old. The message says which, and how to install it."""


def check_requirements(*, java: bool = False) -> None:
    """Raise MissingRequirement unless PySpark and PyArrow are installed and new enough.

    With `java`, also check what a local Spark session needs: a Java runtime, and kafkapy in the workers' Python.
    """
    check_package("pyspark", PYSPARK)
    check_package("pyarrow", PYARROW)
    if java:
        check_java()
        check_workers()


def check_package(name: str, least: tuple[int, ...]) -> None:
    """Raise MissingRequirement unless the package `name` is installed in version `least` or newer.

    The package is imported only if it has no metadata: imports are slow, and Spark starts many short-lived processes.
    """
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
    """Return the version of an installed package.

    Raises ImportError if the package is missing or cannot be imported.
    """
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:  # PySpark as a part of a Spark distribution
        return str(importlib.import_module(name).__version__)


# The workers' Python runs this program in this process's directory, as Spark does. It exits with 1 if kafkapy is not
# installed, and with a message if kafkapy was not built.
_CHECK = """
import sys
try:
    import kafkapy._ext
except ModuleNotFoundError:
    sys.exit(1)
except ImportError as not_built:
    sys.exit(str(not_built))
"""


def check_workers() -> None:
    """Raise MissingRequirement unless the Python that Spark starts for its workers can import kafkapy.

    That Python is the one in the environment variable PYSPARK_PYTHON, else python3.
    """
    python = os.environ.get("PYSPARK_PYTHON") or "python3"
    try:
        look = subprocess.run([python, "-c", _CHECK], capture_output=True, text=True, timeout=60)
        fails, what = look.returncode, "has no kafkapy"
        if fails and look.stderr:
            raise MissingRequirement(f"Spark's workers run {python} in {os.getcwd()}, where {look.stderr.strip()}")
    except (OSError, subprocess.SubprocessError) as error:
        fails, what = 1, f"does not work ({error})"
    if fails:
        source = "PYSPARK_PYTHON" if os.environ.get("PYSPARK_PYTHON") else "as PYSPARK_PYTHON is not set"
        raise MissingRequirement(
            f"Spark runs {python} ({source}), which {what}; set PYSPARK_PYTHON={sys.executable} before the session "
            "starts"
        )


def check_java() -> None:
    """Raise MissingRequirement unless the Java runtime that PySpark would start works and is new enough.

    That runtime is the one in JAVA_HOME, else the one on the PATH.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    remedy = f"install Java {JAVA} or newer (Debian: apt-get install openjdk-{JAVA}-jre-headless)"
    if java is None:
        raise MissingRequirement(f"Spark needs a Java runtime, and there is no program 'java' on the PATH; {remedy}")
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=60).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingRequirement(f"Spark needs a Java runtime, and {java} does not work ({error}); {remedy}") from error
    found = re.search(r'version "(?:1\.)?(\d+)', output)
    if found and int(found[1]) < JAVA:
        raise MissingRequirement(f"Spark needs Java {JAVA} or newer, and {java} is Java {found[1]}; {remedy}")
