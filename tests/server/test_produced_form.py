"""The record formats that each version of a produce request may have."""

import pytest

from kafkapy._ext.entry_walk import whole_entries
from kafkapy.record.legacy import build_set
from kafkapy.server.producing.form import is_nothing


@pytest.mark.parametrize("magic", [0, 1])
def test_records_without_a_whole_message_are_nothing_before_version_3(magic):
    data = build_set([(1, b"key", b"value"), (2, None, b"more")], magic)
    for cut in range(len(data) + 1):
        part = memoryview(data)[:cut]
        whole, size, _ = whole_entries(part)
        assert is_nothing(2, part) == (whole == 0 and size >= 0)
        assert not is_nothing(3, part)


@pytest.mark.parametrize("size", [-1, 0, 13])
def test_a_message_that_is_too_small_is_not_nothing(size):
    assert not is_nothing(0, memoryview(bytes(8) + size.to_bytes(4, "big", signed=True) + bytes(20)))


def test_of_many_messages_only_the_first_is_looked_at():
    """A request can have millions of messages, too many to be read on the network thread."""

    class Endless(bytes):
        def __len__(self):
            return 100_000_000

    assert not is_nothing(0, Endless(build_set([(0, None, b"first")], 0)))
    assert is_nothing(0, Endless(bytes(8) + (100_000_000).to_bytes(4, "big") + bytes(10)))
