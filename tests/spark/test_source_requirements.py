"""The errors for missing or too old requirements of Spark's sources."""

import importlib.metadata
import shutil
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from pyspark.errors import PySparkException

import kafkapy._ext
from kafkapy.spark import check_requirements, register
from kafkapy.spark.requirements import MissingRequirement, check_workers


def without(monkeypatch, name):
    """Make a package appear to be not installed."""
    found = importlib.metadata.version

    def version(asked):
        if asked == name:
            raise importlib.metadata.PackageNotFoundError(asked)
        return found(asked)

    class Nobody:
        @staticmethod
        def find_spec(wanted, path=None, target=None):
            if wanted == name:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Nobody, *sys.meta_path])


def program(directory: Path, name: str, text: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(f"#!/bin/sh\n{text}\n")
    (directory / name).chmod(0o755)


@pytest.fixture(autouse=True)
def own_python(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)


@pytest.mark.other_runtime
def test_the_installed_packages_are_sufficient():
    check_requirements(java=True)


def test_the_extra_brings_no_pandas_that_pyspark_warns_about():
    needs = map(Requirement, importlib.metadata.requires("kafkapy-broker"))
    (pandas,) = [need for need in needs if need.name == "pandas" and need.marker.evaluate({"extra": "spark"})]
    assert not pandas.specifier.contains("3.0.0")
    assert pandas.specifier.contains("2.3.3")


def test_the_error_for_workers_without_kafkapy_names_the_setting_to_change(monkeypatch, tmp_path):
    program(tmp_path, "python3", "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PYSPARK_PYTHON")
    with pytest.raises(
        MissingRequirement, match=r"python3 \(as PYSPARK_PYTHON is not set\), which has no kafkapy"
    ) as warned:
        register(None)
    assert f"set PYSPARK_PYTHON={sys.executable} before the session starts" in str(warned.value)
    monkeypatch.setenv("PYSPARK_PYTHON", "/no/such/python")
    with pytest.raises(MissingRequirement, match=r"Spark runs /no/such/python \(PYSPARK_PYTHON\), which does not work"):
        register(None)


def test_registering_a_source_that_spark_has_found_by_itself_is_no_error():
    class Session:
        """A session like that of PySpark 4.0, which refuses to register a source that it has found by itself."""

        condition = "DATA_SOURCE_ALREADY_EXISTS"

        def __init__(self):
            self.dataSource = self
            self.asked = []

        def register(self, source):
            self.asked.append(source.name())
            error = PySparkException("no")
            error.getCondition = lambda: self.condition
            raise error

    session = Session()
    register(session)
    assert session.asked == ["kafkapy", "kafkapy-log"]
    session.condition = "SOMETHING_ELSE"
    with pytest.raises(PySparkException):
        register(session)


def test_the_error_for_workers_that_import_an_unbuilt_kafkapy_says_what_to_do(monkeypatch, tmp_path):
    unbuilt = tmp_path / "kafkapy" / "_ext"
    unbuilt.mkdir(parents=True)
    shutil.copy(kafkapy.__file__, unbuilt.parent)
    shutil.copy(kafkapy._ext.__file__, unbuilt)
    shutil.copy(Path(kafkapy.__file__).parent / "version.py", unbuilt.parent)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        MissingRequirement, match=rf"in {tmp_path}, where .*/kafkapy is kafkapy's source code, not built"
    ):
        check_workers()


@pytest.mark.parametrize("name", ["pyspark", "pyarrow"])
def test_the_error_names_a_missing_package_and_how_to_install_it(monkeypatch, name):
    without(monkeypatch, name)
    with pytest.raises(MissingRequirement, match=rf"need {name} .* not installed; .*pip install -e '\.\[spark\]'"):
        check_requirements()
    with pytest.raises(MissingRequirement, match=name):
        register(None)


def test_the_error_names_an_old_package_and_its_version(monkeypatch):
    found = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "3.5.8" if name == "pyspark" else found(name))
    with pytest.raises(MissingRequirement, match=r"need pyspark 4\.0 or newer, and 3\.5\.8 is installed"):
        check_requirements()


def test_the_version_of_a_package_without_metadata_is_read_from_the_package(monkeypatch):
    def none(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", none)
    check_requirements()


def test_java_is_looked_for_where_spark_looks(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingRequirement, match=r"no program 'java' on the PATH; install Java 17 or newer"):
        check_requirements(java=True)
    program(tmp_path, "java", "echo 'openjdk version \"11.0.2\" 2019-01-15' >&2")
    with pytest.raises(MissingRequirement, match=r"needs Java 17 or newer, and .*java is Java 11"):
        check_requirements(java=True)
    program(tmp_path / "home" / "bin", "java", "echo 'openjdk version \"1.8.0_412\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    with pytest.raises(MissingRequirement, match="is Java 8"):
        check_requirements(java=True)
    program(tmp_path / "home" / "bin", "java", "exit 3")
    with pytest.raises(MissingRequirement, match="home/bin/java does not work"):
        check_requirements(java=True)
