"""The cleaner's map from keys to numbers: a dict is the model."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy._ext.keymap import ENTRY_BYTES, KeyMap, siphash128
from tests.harness.examples import examples

# From the reference implementation (github.com/veorq/SipHash, vectors.h, vectors_sip128): the key is 00 01 ... 0f,
# the input 00 01 ... of that length.
SIPHASH_VECTORS = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    7: "a1f1ebbed8dbc153c0b84aa61ff08239",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
    63: "5150d1772f50834a503e069a973fbd7c",
}


@pytest.mark.parametrize(("length", "expected"), SIPHASH_VECTORS.items())
def test_the_hash_is_siphash_2_4_128(length: int, expected: str) -> None:
    assert siphash128(bytes(range(length)), bytes(range(16))).hex() == expected


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.binary(max_size=20), st.integers(0, 2**63 - 2)), max_size=200))
def test_a_map_is_a_dict(pairs: list[tuple[bytes, int]]) -> None:
    keys, model = KeyMap(300 * ENTRY_BYTES), dict[bytes, int]()
    for key, value in pairs:
        assert keys.set(key, value)
        model[key] = value
    assert len(keys) == len(model)
    assert {key: keys.find(key) for key in model} == model
    assert keys.find(b"a key of more than twenty bytes") == -1


def test_it_grows_up_to_its_memory_and_then_takes_no_new_keys() -> None:
    memory = 100_003 * ENTRY_BYTES
    keys = KeyMap(memory, 0.9)
    assert keys.capacity == int(100_003 * 0.9)
    assert keys.memory <= 4096 * ENTRY_BYTES
    for number in range(keys.capacity):
        assert keys.set(b"key %d" % number, number)
        assert keys.memory <= memory
    assert not keys.set(b"one more", 0)
    assert keys.find(b"one more") == -1
    assert keys.set(b"key 17", 5)  # a key that is in the map can still get another number
    assert keys.find(b"key 17") == 5
    assert all(keys.find(b"key %d" % number) == number for number in random.Random(1).sample(range(18, 90_000), 5000))
    assert keys.utilization == pytest.approx(0.9, abs=1e-4)


def test_a_cleared_map_is_empty() -> None:
    keys = KeyMap(1 << 20)
    keys.set(b"k", 7)
    keys.clear()
    assert (len(keys), keys.find(b"k")) == (0, -1)


def test_a_full_load_factor_leaves_one_place_free() -> None:
    keys = KeyMap(4 * ENTRY_BYTES, 1.0)
    assert keys.capacity == 3
    assert [keys.set(bytes([number]), number) for number in range(4)] == [True, True, True, False]
    assert keys.find(b"\x09") == -1


@pytest.mark.parametrize(("memory", "load_factor"), [(0, 0.9), (24, 0.9), (48, 0.4), (4096, 0.0), (4096, 1.1)])
def test_memory_for_no_key_is_refused(memory: int, load_factor: float) -> None:
    with pytest.raises(ValueError, match="load factor"):
        KeyMap(memory, load_factor)


def test_a_negative_number_is_refused() -> None:
    with pytest.raises(ValueError, match="-1 is negative"):
        KeyMap(4096).set(b"k", -1)
