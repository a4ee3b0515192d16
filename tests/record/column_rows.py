"""Columns as Python rows, read byte by byte as Arrow's format describes them, for comparisons in tests."""

import struct

FORMATS = {
    "partition": "i",
    "offset": "q",
    "timestamp": "q",
    "timestamp_type": "b",
    "producer_id": "q",
    "producer_epoch": "h",
    "sequence": "i",
    "leader_epoch": "i",
    "attributes": "h",
}


def numbers(memory, count, kind):
    assert len(memory) == count * struct.calcsize("=" + kind)
    return struct.unpack(f"={count}{kind}", memory)


def byte_rows(column, count, kind="i"):
    offsets = numbers(column.offsets, count + 1, kind)
    data = bytes(column.data)
    assert offsets[0] == 0
    assert offsets[-1] == len(data)
    valid = [True] * count
    if column.validity is not None:
        bits = bytes(column.validity)
        valid = [bool(bits[row >> 3] >> (row & 7) & 1) for row in range(count)]
    assert valid.count(False) == column.nulls
    return [data[offsets[row] : offsets[row + 1]] if valid[row] else None for row in range(count)]


def header_rows(column, count):
    lists = numbers(column.offsets, count + 1, "i")
    names = byte_rows(column.names, lists[-1])
    values = byte_rows(column.values, lists[-1])
    pairs = [(name.decode(), value) for name, value in zip(names, values, strict=True)]
    return [tuple(pairs[lists[row] : lists[row + 1]]) for row in range(count)]


def rows_of(columns, large=False):
    """Return the rows as dicts."""
    count = columns.rows
    columns_by_name = {}
    for name, column in columns.columns.items():
        if name == "headers":
            columns_by_name[name] = header_rows(column, count)
        elif name in FORMATS:
            columns_by_name[name] = numbers(column, count, FORMATS[name])
        else:
            columns_by_name[name] = byte_rows(column, count, "q" if large else "i")
    return [dict(zip(columns_by_name, row, strict=True)) for row in zip(*columns_by_name.values(), strict=True)]


def read_all(builder, *buffers):
    """Return all rows of all buffers, from all batches of columns."""
    rows = []
    for buffer in buffers:
        for columns in builder.feed(buffer):
            rows += rows_of(columns)
        assert builder.consumed == len(buffer) or builder.past_end
    rest = builder.finish()
    assert builder.finish() is None
    return rows + (rows_of(rest) if rest else [])
