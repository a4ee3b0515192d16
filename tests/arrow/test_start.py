"""The imports of a process before it reads: Spark starts two processes for a query, and at first one for each task."""

import subprocess
import sys


def test_reading_does_not_import_pyarrow_compute() -> None:
    code = "import sys, kafkapy.arrow.partition_reader, kafkapy.arrow.segments; print('pyarrow.compute' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
