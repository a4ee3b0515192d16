"""How fast `kafkapy log` reads a segment file, and how much memory it takes; Apache Kafka has no such tools.

Each command runs as a user runs it, on a segment in the page cache. Figures are by CPU time, which on an idle machine
is the wall time. The time for an empty segment, that is the start of Python and of the command, is subtracted. Values
are lines of JSON, keys repeat. The bare loop reads the same file and computes its CRC-32C once: the least that a tool
which checks everything can do.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from crc32c import crc32c

from kafkapy.record.batch import build
from perf import frames
from perf.measurement import KAFKAPY, MIB, Bench, Figures, Goal, Measurement, Row

BATCH = 65536
POOL = 256  # different batches
SIZES = {"1k": 1024, "100b": 100}
MEMORY = "log.stats.memory"
COMMANDS = {
    "stats": ("stats", "--json"),
    "verify": ("verify",),
    "json": ("export", "--json"),
    "parquet": ("export", "--force", "--parquet"),
}
GIGABYTE = Goal(1000, None)


class LogTools(Measurement):
    name = "log-tools"
    about = "kafkapy log stats, verify and export on a segment in the page cache; bare: reading it with one CRC-32C"
    rows = (
        Row("log.stats.1k", "log stats, 1 KiB records", "MB/s", "higher", GIGABYTE),
        Row("log.stats.100b", "log stats, 100 B records", "MB/s", "higher"),
        Row("log.verify.1k", "log verify, 1 KiB records", "MB/s", "higher", GIGABYTE),
        Row("log.verify.100b", "log verify, 100 B records", "MB/s", "higher"),
        Row("log.json.1k", "log export --json, 1 KiB records", "MB/s", "higher"),
        Row("log.parquet.1k", "log export --parquet, 1 KiB records", "MB/s", "higher"),
        Row(MEMORY, "resident memory of log stats", "MiB", "lower", Goal(100, None)),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        if kind != KAFKAPY:
            return {}
        found: Figures = {}
        with bench.data() as path:
            empty = make_segment(path / "empty-0", 1024, 0)
            starts = {name: _seconds(name, empty, path)[0] for name in COMMANDS}
            for size_name, size in SIZES.items():
                segment = make_segment(path / f"full{size_name}-0", size, bench.scale.segment // 2)
                for name in COMMANDS:
                    if f"log.{name}.{size_name}" not in {row.key for row in self.rows}:
                        continue
                    seconds, memory = _seconds(name, segment, path)
                    walked = max(seconds - starts[name], 0.001)
                    found[f"log.{name}.{size_name}"] = segment.stat().st_size / 1e6 / walked
                    if name == "stats":
                        found[MEMORY] = max(found.get(MEMORY, 0.0), memory / MIB)
        shown = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in starts.items())
        bench.note("log-tools", f"log tools: segments of {bench.scale.segment // 2:,} bytes; start subtracted: {shown}")
        return found

    def limit(self, bench: Bench) -> Figures:
        found: Figures = {}
        with bench.data() as path:
            for size_name, size in SIZES.items():
                segment = make_segment(path / f"bare{size_name}-0", size, bench.scale.segment // 2)
                buffer = bytearray(MIB)
                began = time.process_time()
                checksum = 0
                with segment.open("rb", buffering=0) as file:
                    while count := file.readinto(buffer):
                        checksum = crc32c(memoryview(buffer)[:count], checksum)
                speed = segment.stat().st_size / 1e6 / (time.process_time() - began)
                found |= {row.key: speed for row in self.rows if row.key.endswith(size_name)}
        return found


def make_segment(directory: Path, size: int, length: int) -> Path:
    """Create a partition with one segment of about `length` bytes, whose records have values of `size` bytes."""
    directory.mkdir()
    count = frames.records_that_fill(size, BATCH)
    values = frames.text_values(size, count)
    pool: list[bytes] = []
    path = directory / f"{0:020}.log"
    offset = written = 0
    with path.open("wb") as file:
        while written < length:
            if len(pool) < POOL:
                first = len(pool) * count
                records = [(first + n, b"key-%08d" % (first + n), value, ()) for n, value in enumerate(values)]
                pool.append(build(records))
            batch = pool[offset // count % POOL]
            # The checksum does not cover the base offset.
            file.write(offset.to_bytes(8, "big") + batch[8:])
            offset += count
            written += len(batch)
    for suffix in (".index", ".timeindex"):
        path.with_suffix(suffix).touch()
    return path


# Not ru_maxrss: in a child it begins with the memory of its parent process.
WITH_PEAK = """
import re, sys
from kafkapy.tools.main import main
code = main(sys.argv[1:])
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1], file=sys.stderr)
sys.exit(code)
"""


def _seconds(name: str, segment: Path, place: Path) -> tuple[float, int]:
    """Run a command; return its CPU seconds and its peak memory in bytes."""
    words = [*COMMANDS[name], *([str(place / "out.parquet")] if name == "parquet" else [])]
    with subprocess.Popen(
        [sys.executable, "-c", WITH_PEAK, "log", *words, str(segment.parent)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr
        errors = process.stderr.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"kafkapy log {name} ended with {process.returncode}: {errors}")
    return usage.ru_utime + usage.ru_stime, int(errors.split()[-1]) * 1024
