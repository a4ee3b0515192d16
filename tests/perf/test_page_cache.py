"""A process whose page cache is smaller than its files."""

import os
import subprocess
import sys
from pathlib import Path

from kafkapy.tools.bench.page_cache import evict, read_from_disk
from perf.page_cache import little_memory

MIB = 1 << 20
READ_WHEN_TOLD = "import sys\nfor line in sys.stdin: print(len(open(line.strip(), 'rb').read(1 << 20)), flush=True)"


def test_a_process_works_with_little_memory_and_leaves_the_cgroup_afterwards(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(os.urandom(2 * MIB))
    groups = Path("/proc/self/cgroup").read_text()
    reader = subprocess.Popen(
        [sys.executable, "-c", READ_WHEN_TOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert reader.stdin
    assert reader.stdout
    try:
        with little_memory(reader.pid, 64 * MIB, tmp_path) as how:
            evict(file)
            before = read_from_disk()
            reader.stdin.write(f"{file}\n")
            assert reader.stdout.readline() == f"{MIB}\n"
            assert read_from_disk() >= before
        assert how.startswith(("a memory cgroup of 64 MiB", "a page-cache hog"))
        assert Path(f"/proc/{reader.pid}/cgroup").read_text() == groups
    finally:
        reader.stdin.close()
        reader.stdout.close()
        reader.wait()
    assert [each.name for each in tmp_path.iterdir() if each.name != "hog.out"] == ["file"]
