"""Read pools: one for each device, created at the first read, and all stopped together."""

import os
import threading
from pathlib import Path

import pytest

from kafkapy.runtime.read_pools import ReadPools


def test_files_and_directories_of_one_device_share_a_pool(tmp_path: Path) -> None:
    pools = ReadPools(2)
    (tmp_path / "a").mkdir()
    with (tmp_path / "file").open("w") as file:
        pool = pools.of_file(file.fileno())
    assert pools.of_directory(str(tmp_path)) is pools.of_directory(str(tmp_path / "a")) is pool
    with Path("/proc/self/stat").open() as other:
        assert pools.of_file(other.fileno()) is not pool
    gate = threading.Event()
    pool.submit(gate.wait)
    assert pools.depth == 1
    gate.set()
    pools.stop()
    assert pools.depth == 0


def test_a_directory_that_is_gone_has_a_pool_too(tmp_path: Path) -> None:
    pools = ReadPools(1)
    assert pools.of_directory(str(tmp_path / "gone")) is not pools.of_directory(str(tmp_path))


def test_a_pool_that_is_first_needed_after_the_stop_takes_nothing() -> None:
    pools = ReadPools(1)
    pools.stop()
    with pytest.raises(RuntimeError, match="is stopped"):
        pools.of_directory(os.curdir).submit(print)
