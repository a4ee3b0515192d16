"""Freed memory that the process keeps, measured by page faults in a separate process: it is set for a whole process."""

import subprocess
import sys

ROUNDS = 50
TAKE_AND_FREE = f"""
import resource
from kafkapy._ext.allocator import keep_freed
{{first}}
def taken():
    return [b"x" * 300_000 for _ in range(4)]
taken()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({ROUNDS}):
    taken()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(first: str) -> int:
    script = TAKE_AND_FREE.format(first=first)
    return int(subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout)


def test_blocks_that_are_taken_again_and_again_are_touched_for_the_first_time_once() -> None:
    assert faults("assert keep_freed(4 << 20)") < ROUNDS < faults("")
