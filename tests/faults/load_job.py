"""A load that can be killed: load_job.py BOOTSTRAP TOPIC DIRECTORY [FROM_MS]. With a time, it reloads from there.

Prints "begun" when it begins and the number of rows when it is done. The load runs in this process, without a JVM.
"""

import sys
from pathlib import Path

from kafkapy.spark.load import JsonValues, Settings, load


def main(bootstrap: str, topic: str, directory: str, start_ms: str = "") -> None:
    settings = Settings(bootstrap, values=JsonValues("n bigint"), batch_rows=1000)
    print("begun", flush=True)
    done = load(
        [topic],
        Path(directory),
        settings,
        start_ms=int(start_ms) if start_ms else None,
        again=bool(start_ms),
        compact_files=3,
    )
    print(done.rows, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
