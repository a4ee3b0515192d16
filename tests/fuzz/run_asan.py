"""Fuzz the parsers under AddressSanitizer: python tests/fuzz/run_asan.py --inputs 1000000 --seed 1

Builds the extensions with KAFKAPY_SANITIZE into a directory of its own (the ones in the tree stay as they are), and
runs tests.fuzz.run there with the sanitizer's allocator under every Python object. A read or write outside of an
allocation stops it, and so does any allocation of more than 256 MiB: inputs are a few kilobytes, so that would be a
length which was believed. (zstd's own limit for a window is 128 MiB.)

Needs gcc with libasan. All arguments go to tests.fuzz.run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def sanitizer() -> str:
    """Return the runtime library that must be loaded before everything else."""
    path = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True
    ).stdout.strip()
    if not os.path.isabs(path):
        sys.exit("gcc has no libasan.so (Debian: it comes with gcc; Fedora: dnf install libasan)")
    return path


def build(place: Path) -> None:
    """Build the package with sanitized extensions at `place`, and copy the tests there."""
    shutil.copytree(ROOT / "kafkapy", place / "kafkapy", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (place / "tests").symlink_to(ROOT / "tests")
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", f"--build-lib={place}", f"--build-temp={place / 'objects'}"],
        cwd=ROOT,
        env={**os.environ, "KAFKAPY_SANITIZE": "1"},
        check=True,
    )


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="kafkapy-asan-") as folder:
        place = Path(folder)
        build(place)
        environment = {
            **os.environ,
            "LD_PRELOAD": sanitizer(),
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:max_allocation_size_mb=256:allocator_may_return_null=0",
            # Each Python object is then a separate allocation, with poisoned memory on both sides.
            "PYTHONMALLOC": "malloc",
            "PYTHONPATH": str(place),
        }
        return subprocess.run(
            [sys.executable, "-m", "tests.fuzz.run", *sys.argv[1:]], cwd=place, env=environment
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
