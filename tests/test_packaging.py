"""What is built from a checkout, and that it works where nothing else is."""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def copy_of_the_sources(to: Path) -> Path:
    to.mkdir()
    for name in ("ext", "kafkapy"):
        shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, to)
    return to


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    directory = tmp_path_factory.mktemp("sdist")
    copy = copy_of_the_sources(directory / "copy")
    if (ROOT / "build" / "cython").exists():  # an sdist has none of it: what is up to date need not be made again
        shutil.copytree(ROOT / "build" / "cython", copy / "build" / "cython")
    subprocess.run([sys.executable, "setup.py", "-q", "sdist", "-d", str(directory / "dist")], cwd=copy, check=True)
    (archive,) = (directory / "dist").iterdir()
    return archive


def test_the_sdist_holds_all_that_a_build_needs(sdist):
    copy = sdist.parents[1] / "copy"
    with tarfile.open(sdist) as tar:
        packed = {name.partition("/")[2] for name in tar.getnames()}
    kinds = ("ext/*.pyx", "ext/*.pxd", "kafkapy/**/*.py", "kafkapy/**/*.pyi", "kafkapy/**/*.schema", "kafkapy/py.typed")
    needed = {str(path.relative_to(copy)) for kind in kinds for path in copy.glob(kind)}
    assert {"ext/codec.pyx", "kafkapy/_ext/codec.pyi"} <= needed
    assert needed - packed == set()


def test_an_incomplete_copy_stops_with_the_reason(tmp_path):
    shutil.copy(ROOT / "setup.py", tmp_path)
    (tmp_path / "ext").mkdir()
    run = subprocess.run([sys.executable, "setup.py", "--version"], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 1
    assert "no Cython sources" in run.stderr


def test_the_wheel_made_from_the_sdist_works_in_an_empty_environment(sdist, tmp_path):
    wheels = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(sdist)]
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\nexec gcc "$@" -O0 -g0\n')  # a third of the time
    compiler.chmod(0o755)
    subprocess.run(wheels, env={**os.environ, "CC": str(compiler)}, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
    modules = {path.stem for path in (ROOT / "ext").glob("*.pyx")}
    assert {name.split("/")[2].split(".")[0] for name in names if name.endswith(".so")} == modules
    assert {f"kafkapy/_ext/{module}.pyi" for module in modules} <= names
    assert "kafkapy/py.typed" in names
    assert {"pyspark_kafkapy/__init__.py", "pyspark_kafkapy_log/__init__.py"} <= names
    assert not [
        name for name in names if name.split("/")[0] in ("ext", "tests", "perf") or name.endswith((".c", ".pyx"))
    ]

    venv.create(tmp_path / "empty", with_pip=False)
    python = str(tmp_path / "empty" / "bin" / "python")
    subprocess.run([*PIP, "--python", python, "install", str(wheel)], check=True)
    outside = {**os.environ, "PYTHONPATH": "", "PATH": f"{tmp_path}/empty/bin:{os.environ['PATH']}"}
    version = subprocess.run(
        ["kafkapy", "--version"], cwd=tmp_path, env=outside, check=True, capture_output=True, text=True
    )
    assert version.stdout.strip().endswith(wheel.name.split("-")[1])
    assert spark_packages(python, outside) == ["pyspark_kafkapy", "pyspark_kafkapy_log"]
    program = (
        "import kafkapy, subprocess, sys\n"
        "with kafkapy.Broker(process=True) as broker:\n"
        "    at = ['-b', broker.bootstrap_servers]\n"
        "    subprocess.run(['kafkapy', 'produce', 'greetings', *at], input='hello\\n', text=True, check=True)\n"
        "    subprocess.run(['kafkapy', 'consume', 'greetings', *at], check=True)\n"
    )
    spoken = subprocess.run(
        [python, "-c", program], cwd=tmp_path, env=outside, capture_output=True, text=True, timeout=60
    )
    assert spoken.returncode == 0, spoken.stderr
    assert "hello" in spoken.stdout


def spark_packages(python: str, environment: dict[str, str]) -> list[str]:
    """What Spark finds, in the way in which it looks; importing them must not fail, here without PySpark."""
    program = (
        "import importlib, pkgutil\n"
        "for found in pkgutil.iter_modules():\n"
        "    if found.name.startswith('pyspark_'):\n"
        "        importlib.import_module(found.name)\n"
        "        print(found.name)\n"
    )
    run = subprocess.run([python, "-c", program], env=environment, check=True, capture_output=True, text=True)
    assert "Spark cannot have the source 'kafkapy': No module named 'pyspark'" in run.stderr
    return sorted(run.stdout.split())


def test_an_editable_install_shows_spark_its_packages(tmp_path):
    copy = copy_of_the_sources(tmp_path / "copy")
    build = f"from setuptools import build_meta; build_meta.build_editable({str(tmp_path)!r})"
    environment = {**os.environ, "KAFKAPY_BUILD_ONLY": "varint"}
    subprocess.run([sys.executable, "-c", build], cwd=copy, env=environment, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "empty", with_pip=False)
    python = str(tmp_path / "empty" / "bin" / "python")
    subprocess.run([*PIP, "--python", python, "install", "--no-deps", str(wheel)], check=True)
    outside = {**os.environ, "PYTHONPATH": ""}
    assert spark_packages(python, outside) == ["pyspark_kafkapy", "pyspark_kafkapy_log"]
    where = "import pyspark_kafkapy, kafkapy; print(pyspark_kafkapy.__file__, kafkapy.__file__)"
    run = subprocess.run([python, "-c", where], env=outside, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert run.stdout.split()[-2:] == [
        str(copy / "kafkapy" / "spark" / "discovery" / "pyspark_kafkapy" / "__init__.py"),
        str(copy / "kafkapy" / "__init__.py"),
    ]


def test_an_extension_that_does_not_build_stops_the_install_with_the_reason(tmp_path):
    copy = copy_of_the_sources(tmp_path / "copy")
    install = [*PIP, "install", "--no-deps", "--no-build-isolation", "--target", str(tmp_path / "target"), "."]
    environment = {**os.environ, "KAFKAPY_BUILD_ONLY": "varint", "CC": "/bin/false"}
    no_compiler = subprocess.run(install, cwd=copy, env=environment, capture_output=True, text=True)
    assert no_compiler.returncode != 0
    assert "the extension kafkapy._ext.varint (" in no_compiler.stderr
    assert ") did not build: " in no_compiler.stderr
    assert "apt-get install gcc python3-dev" in no_compiler.stderr
    with (copy / "ext" / "varint.pyx").open("a") as source:
        source.write("cdef int broken(:\n")
    broken = subprocess.run(install, cwd=copy, env={**environment, "CC": "gcc"}, capture_output=True, text=True)
    assert broken.returncode != 0
    assert "ext/varint.pyx" in broken.stderr
    assert not (tmp_path / "target").exists()
