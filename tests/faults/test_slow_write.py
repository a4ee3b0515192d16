"""A write that waits for the disk blocks only the thread that writes."""

import select
import subprocess
import sys
from pathlib import Path

from tests.harness.slow_disk import PATIENCE_S, slow_disk

PROGRAM = """
import os, sys
from kafkapy._ext import syscalls
from kafkapy.runtime.disk_pool import DiskPool

fd = os.open(sys.argv[1], os.O_RDWR)
pool = DiskPool(1)
written = []
pool.submit(syscalls.pwritev, fd, [b"sho", b"rt"], 10, done=lambda *result: written.append(result))
for line in sys.stdin:
    print("at work", written, flush=True)
pool.stop()
print("in the end", written)
"""


def test_a_short_write_that_waits_for_the_disk_blocks_no_other_thread(tmp_path: Path) -> None:
    """The write changes a part of a page that is not in memory, so the kernel waits until it has read the page."""
    with slow_disk(tmp_path / "slow") as disk:
        (disk.source / "file").write_bytes(bytes(4096))
        disk.hold("file")
        asked = [sys.executable, "-c", PROGRAM, str(disk.path / "file")]
        with subprocess.Popen(
            [*disk.prefix, *asked], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as program:
            assert program.stdin is not None
            assert program.stdout is not None
            try:
                disk.wait_until_held()
                program.stdin.write("\n")
                program.stdin.flush()
                answered, _, _ = select.select([program.stdout], [], [], PATIENCE_S)
                assert answered, "the write held up the whole program"
                assert program.stdout.readline() == "at work []\n"
            finally:
                disk.release()
            assert program.communicate(timeout=PATIENCE_S)[0] == "in the end [(5, None)]\n"
        assert (disk.source / "file").read_bytes()[10:15] == b"short"
