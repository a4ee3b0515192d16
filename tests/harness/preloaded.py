"""Small C libraries for LD_PRELOAD, compiled once."""

import os
from pathlib import Path

from tests.harness import toolchain


def library(source: Path) -> Path:
    """Return the library of a C file next to this module. Compile it if needed."""
    made = toolchain.cache_dir() / f"{source.stem.replace('_', '-')}-{toolchain.fingerprint([source])}.so"
    if not made.exists():
        new = made.with_suffix(f".{os.getpid()}")
        toolchain.run([toolchain.find("gcc"), "-O2", "-shared", "-fPIC", "-o", str(new), str(source), "-ldl"])
        new.replace(made)
    return made
