"""What a process has to import before it reads: Spark makes two for every query, and one for each task at the start."""

import subprocess
import sys


def test_reading_does_not_wait_for_the_functions_of_pyarrow() -> None:
    code = "import sys, kafkapy.arrow.partition_reader, kafkapy.arrow.segments; print('pyarrow.compute' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
