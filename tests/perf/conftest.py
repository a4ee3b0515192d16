"""Makes the top-level package `perf` importable and provides a bench for a few megabytes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from perf.brokers import Fleet
from perf.measurement import TINY, Bench
from perf.warm import Warmth


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    fleet, warmth = Fleet(tmp_path), Warmth(tmp_path, limit=0)
    yield Bench(TINY, tmp_path, fleet, warmth)
    fleet.close()
    warmth.close()
