"""What is built from a checkout."""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_sdist_holds_all_that_a_build_needs(tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("ext", "kafkapy"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    subprocess.run([sys.executable, "setup.py", "-q", "sdist", "-d", str(tmp_path / "dist")], cwd=copy, check=True)
    (archive,) = (tmp_path / "dist").iterdir()
    with tarfile.open(archive) as tar:
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
