"""Types of ext/json_lines.pyx."""

from kafkapy._ext.columns import Columns

def json_lines(columns: Columns, prefix: bytes) -> bytes: ...
