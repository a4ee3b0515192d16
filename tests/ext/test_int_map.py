"""The map from int64 to a number: whatever is put and removed, it agrees with a dict."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy._ext.int_map import IntTable

KEYS = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 20)
STEPS = st.lists(st.tuples(st.sampled_from(["put", "put", "put", "remove"]), KEYS, st.integers(0, 2**63 - 1)))


@given(STEPS)
def test_it_answers_as_a_dict_would(steps):
    table, model = IntTable(), {}
    for what, key, value in steps:
        if what == "put":
            table.put(key, value)
            model[key] = value
        else:
            assert table.remove(key) == (key in model)
            model.pop(key, None)
    assert len(table) == len(model)
    assert all(table.get(key) == model.get(key, -1) for _, key, _ in steps)


def test_many_keys_come_and_go():
    table = IntTable()
    for key in range(20_000):
        table.put(key, key)
        if key >= 100:
            assert table.remove(key - 100)
    assert len(table) == 100
    assert [table.get(key) for key in (19_899, 19_900, 19_999, 20_000)] == [-1, 19_900, 19_999, -1]
    table.clear()
    assert (len(table), table.get(19_999)) == (0, -1)


def test_values_are_numbers_from_0_on():
    with pytest.raises(ValueError, match="-1 is negative"):
        IntTable().put(1, -1)
