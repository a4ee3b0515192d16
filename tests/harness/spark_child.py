"""The other end of harness.spark.Driver: `python -m tests.harness.spark_child` runs functions with one Spark session.

It reads the settings first, then one message for each call: (module, function, args, kwargs). The answer is
(True, result) or (False, traceback). Messages are pickles with a length before them.
"""

import importlib
import os
import pickle
import struct
import sys
import traceback
from typing import IO, Any


def write_message(stream: IO[bytes], message: object) -> None:
    """Send one message."""
    data = pickle.dumps(message)
    stream.write(struct.pack(">Q", len(data)) + data)
    stream.flush()


def read_message(stream: IO[bytes]) -> Any:
    """Return the next message; raise EOFError when there is none."""
    head = stream.read(8)
    if len(head) < 8:
        raise EOFError
    (length,) = struct.unpack(">Q", head)
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return pickle.loads(data)


def main() -> None:
    """Serve until standard input ends."""
    from tests.harness.spark import session

    orders, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # Spark's output must not mix with the answers
    spark: Any = None
    result: object = None
    while True:
        try:
            order = read_message(orders)
        except EOFError:
            break
        try:
            if spark is None:
                spark = session(order)
            else:
                module, name, args, kwargs = order
                result = getattr(importlib.import_module(module), name)(spark, *args, **kwargs)
            answer = (True, result)
        except Exception:
            answer = (False, traceback.format_exc())
        write_message(answers, answer)
    if spark is not None:
        spark.stop()


if __name__ == "__main__":
    main()
