"""The packages built from a checkout, which must work in an empty environment."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.not_quick

ROOT = Path(__file__).parent.parent
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


# kafkapy on the package index is an unrelated project, and kafkapy-broker is not published yet.
NOT_OURS = re.compile(
    r"\bkafkapy\[\w|\bpip3?\s+install\s+(?:-\S+\s+|['\"\w][^\s`&|;#]*[^\s`&|;#,.:)][ \t]+)*?['\"]?kafkapy"
)
KINDS = {"", ".md", ".py", ".pyx", ".sh", ".toml"}


@pytest.mark.parametrize(
    "text",
    [
        "pip install 'kafkapy[plot]'",
        "pip install kafkapy",
        "pip3 install -U\n kafkapy-broker",
        "pip install pyarrow kafkapy",
        "pip install -q 'polars>=1' pyarrow kafkapy-broker",
    ],
)
def test_a_name_on_the_package_index_is_recognized(text):
    assert NOT_OURS.search(text)


def test_no_page_or_message_says_to_install_from_the_package_index():
    files = [path for part in ("docs", "ext", "kafkapy", "perf", "scripts") for path in (ROOT / part).rglob("*")]
    files += [ROOT / "README.md", ROOT / "pyproject.toml", ROOT / "setup.py"]
    texts = {path: path.read_text() for path in files if path.suffix in KINDS and path.is_file()}
    assert {ROOT / "README.md", ROOT / "scripts" / "quickstart", ROOT / "kafkapy" / "extras.py"} <= texts.keys()
    assert [f"{path}: {found[0]}" for path, text in texts.items() if (found := NOT_OURS.search(text))] == []


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
    if (ROOT / "build" / "cython").exists():  # an sdist has no such files; up-to-date ones need not be compiled again
        shutil.copytree(ROOT / "build" / "cython", copy / "build" / "cython")
    subprocess.run([sys.executable, "setup.py", "-q", "sdist", "-d", str(directory / "dist")], cwd=copy, check=True)
    (archive,) = (directory / "dist").iterdir()
    return archive


def test_the_sdist_has_all_files_that_a_build_needs(sdist):
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


def unpacked(sdist: Path, to: Path) -> Path:
    """Unpack the sdist and copy Cython's output for the same sources into it, which saves half of a build."""
    shutil.unpack_archive(sdist, to)
    (directory,) = to.iterdir()
    if (ROOT / "build" / "cython").exists():
        shutil.copytree(ROOT / "build" / "cython", directory / "build" / "cython")
    return directory


def test_the_wheel_built_from_the_sdist_works_in_an_empty_environment(sdist, tmp_path, request):
    source = unpacked(sdist, tmp_path / "unpacked") if request.config.getoption("quick") else sdist
    wheels = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(source)]
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\nexec gcc "$@" -O0 -g0\n')  # a third of the time
    compiler.chmod(0o755)
    subprocess.run(wheels, env={**os.environ, "CC": str(compiler)}, check=True)
    (wheel,) = tmp_path.glob("kafkapy_broker-*.whl")
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
    # Without PYTHONPATH: with the checkout on it, pip may find metadata there and take kafkapy for installed.
    outside = {**os.environ, "PYTHONPATH": "", "PATH": f"{tmp_path}/empty/bin:{os.environ['PATH']}"}
    subprocess.run([*PIP, "--python", python, "install", str(wheel)], env=outside, check=True)
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
    """Return the packages that Spark finds in its way; their import must not fail, here without PySpark."""
    program = (
        "import importlib, pkgutil\n"
        "for found in pkgutil.iter_modules():\n"
        "    if found.name.startswith('pyspark_'):\n"
        "        importlib.import_module(found.name)\n"
        "        print(found.name)\n"
    )
    run = subprocess.run([python, "-c", program], env=environment, check=True, capture_output=True, text=True)
    assert "Spark cannot use the source 'kafkapy': No module named 'pyspark'" in run.stderr
    return sorted(run.stdout.split())


@pytest.mark.parametrize(
    "words",
    [
        ("-c", "import kafkapy; kafkapy.Broker().start()"),
        ("-c", "from kafkapy._ext import dir_look"),
        ("-c", "from kafkapy._ext.codec import Codec"),
        ("-m", "kafkapy", "start"),
        ("-m", "kafkapy", "topics", "list"),
    ],
)
def test_the_error_of_unbuilt_sources_says_what_to_do(tmp_path, words):
    copy = copy_of_the_sources(tmp_path / "copy")
    (copy / "kafkapy" / "_ext" / "codec.cpython-27-x86_64-linux-gnu.so").touch()  # built for another Python
    run = subprocess.run([sys.executable, *words], cwd=copy, capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].partition(": ")[2].rstrip(".") == (
        f"{copy}/kafkapy is kafkapy's source code, not built for Python {sys.version_info[0]}.{sys.version_info[1]}: "
        "start Python in another directory to use an installed kafkapy, "
        f"or run pip install -e . in {copy} to build this one"
    )


@pytest.mark.parametrize(
    "words",
    [
        ("-c", "from kafkapy._ext import dir_look"),
        ("-c", "from kafkapy._ext.dir_look import look"),
        ("-m", "kafkapy", "start", "-o", "log.dirs=data"),
    ],
)
def test_the_error_of_an_outdated_build_says_what_is_missing_and_what_to_do(tmp_path, words):
    copy = copy_of_the_sources(tmp_path / "copy")
    for module in (ROOT / "kafkapy" / "_ext").glob("*.so"):
        if not module.name.startswith("dir_look."):
            (copy / "kafkapy" / "_ext" / module.name).symlink_to(module)
    run = subprocess.run([sys.executable, *words], cwd=copy, capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].partition(": ")[2].rstrip(".") == (
        f"{copy}/kafkapy was built from older sources, without kafkapy._ext.dir_look: "
        f"run pip install -e . in {copy} again"
    )
    others = subprocess.run([sys.executable, "-c", "import kafkapy._ext.varint"], cwd=copy)
    assert others.returncode == 0


SHORT_NAMES = ["diff-logs", "dump-log", "find-log", "log-stats", "tail-log", "verify-log"]


@pytest.mark.parametrize("name", SHORT_NAMES)
def test_a_log_tool_in_an_unbuilt_checkout_says_what_to_run(tmp_path, name):
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    run = subprocess.run(
        [f"scripts/{name}"], cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    )
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr == (
        f"scripts/{name}: kafkapy is not installed: "
        f"run python3 -m venv .venv && .venv/bin/pip install -e . in {tmp_path}\n"
    )


@pytest.mark.parametrize("name", SHORT_NAMES)
def test_a_log_tool_runs_the_kafkapy_of_its_checkout(tmp_path, name):
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    kafkapy = tmp_path / ".venv" / "bin" / "kafkapy"
    kafkapy.parent.mkdir(parents=True)
    kafkapy.write_text('#!/bin/sh\necho "$@"\n')
    kafkapy.chmod(0o755)
    run = subprocess.run([tmp_path / "scripts" / name, "a b", "c"], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"log (diff|dump|find|stats|tail|verify) a b c\n", run.stdout)


def test_a_script_builds_again_if_another_script_has_built_other_sources_meanwhile(tmp_path):
    for name in ("pyproject.toml", "setup.py", "ext/one.pyx", "ext/one.pxd", "kafkapy/_ext/one.so"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@" >>calls\n')
    python.chmod(0o755)

    def builds(source: str, extra: str) -> bool:
        """Return True if the script with this extra builds the extensions from this source."""
        (tmp_path / "ext" / "one.pyx").write_text(source)
        (tmp_path / "calls").write_text("")
        program = f"set -euo pipefail; source {ROOT}/scripts/lib.sh; build_into_venv {extra}"
        subprocess.run(["bash", "-c", program], cwd=tmp_path, check=True, capture_output=True)
        return "pip install" in (tmp_path / "calls").read_text()

    assert builds("a", "test")
    assert builds("a", "plot")
    assert not builds("a", "test")
    assert builds("b", "plot")
    assert builds("a", "test")


def test_an_editable_install_is_found_from_everywhere_and_shows_spark_its_packages(tmp_path):
    copy = copy_of_the_sources(tmp_path / "kafkapy")
    build = f"from setuptools import build_meta; build_meta.build_editable({str(tmp_path)!r})"
    environment = {**os.environ, "KAFKAPY_BUILD_ONLY": "varint"}
    subprocess.run([sys.executable, "-c", build], cwd=copy, env=environment, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "empty", with_pip=False)
    python = str(tmp_path / "empty" / "bin" / "python")
    outside = {**os.environ, "PYTHONPATH": ""}
    subprocess.run([*PIP, "--python", python, "install", "--no-deps", str(wheel)], env=outside, check=True)
    assert spark_packages(python, outside) == ["pyspark_kafkapy", "pyspark_kafkapy_log"]
    where = "import pyspark_kafkapy, kafkapy; print(pyspark_kafkapy.__file__, kafkapy.__file__)"
    for directory in (tmp_path / "empty", tmp_path):  # the latter holds the checkout, a directory called kafkapy
        run = subprocess.run(
            [python, "-c", where], env=outside, cwd=directory, check=True, capture_output=True, text=True
        )
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
