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
    subprocess.run(wheels, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
    modules = {path.stem for path in (ROOT / "ext").glob("*.pyx")}
    assert {name.split("/")[2].split(".")[0] for name in names if name.endswith(".so")} == modules
    assert {f"kafkapy/_ext/{module}.pyi" for module in modules} <= names
    assert "kafkapy/py.typed" in names
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
