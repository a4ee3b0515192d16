"""Bytes by key: exact while all keys fit, near the truth when they do not, and never short of a large key."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy._ext.key_totals import KEY_BYTES, KeyTotals
from tests.harness.examples import examples

RECORDS = st.lists(st.tuples(st.binary(max_size=3), st.integers(1, 1000), st.booleans()), max_size=200)


def model_of(records):
    """Return {key: [bytes, records, size of the last record, whether it is a tombstone]}."""
    model = {}
    for key, size, tombstone in records:
        total, count, *_ = model.get(key, (0, 0))
        model[key] = [total + size, count + 1, size, tombstone]
    return model


def counted(records, memory=1 << 20):
    totals = KeyTotals(memory)
    for record in records:
        totals.count(*record)
    return totals


@settings(max_examples=examples(100), deadline=None)
@given(RECORDS)
def test_what_fits_is_exact(records):
    totals, model = counted(records), model_of(records)
    last = list(model.values())
    assert totals.kept() == (
        len(model),
        sum(one[2] for one in last),
        sum(one[3] for one in last),
        sum(one[2] for one in last if one[3]),
    )
    found = totals.largest()
    assert {name: (size, count) for name, _, size, _, count in found} == {k: (v[0], v[1]) for k, v in model.items()}
    assert [size for _, _, size, _, _ in found] == sorted((v[0] for v in model.values()), reverse=True)
    assert all(error == 0 for _, _, _, error, _ in found)


def test_the_largest_of_many_keys_are_exact_as_long_as_the_table_has_them():
    rng = random.Random(3)
    records = [(b"%d" % int(rng.paretovariate(0.2)), rng.randint(1, 50), False) for _ in range(60_000)]
    totals, model = counted(records, 100_000 * KEY_BYTES), model_of(records)
    assert totals.halvings == 0
    assert len(model) > 2000
    wanted = sorted(((value[0], value[1]) for value in model.values()), reverse=True)[:1024]
    found = totals.largest()
    assert [one[2] for one in found] == [size for size, _ in wanted]
    assert all((size, count) == tuple(model[name][:2]) for name, _, size, _, count in found)


def test_more_keys_than_fit_are_told_from_a_sample():
    rng = random.Random(4)
    keys = 50_000
    records = [(b"key-%d" % rng.randrange(keys), 100 + rng.randrange(10), rng.random() < 0.25) for _ in range(150_000)]
    totals, model = counted(records, 4096 * KEY_BYTES), model_of(records)
    assert totals.halvings >= 4
    assert totals.sampled <= 4096 * 3 // 4
    scale = 2**totals.halvings
    count, size, gone, gone_size = (part * scale for part in totals.kept())
    assert abs(count / len(model) - 1) < 0.15
    assert abs(size / sum(one[2] for one in model.values()) - 1) < 0.15
    assert abs(gone / sum(one[3] for one in model.values()) - 1) < 0.2
    assert abs(gone_size / sum(one[2] for one in model.values() if one[3]) - 1) < 0.2


def test_a_large_key_is_never_missed_and_its_bounds_hold():
    rng = random.Random(5)
    records = [(b"small-%d" % rng.randrange(10**6), 10, False) for _ in range(60_000)]
    for n in range(20):
        records += [(b"large-%d" % n, 10, False)] * (300 + 20 * n)
    rng.shuffle(records)
    totals, model = counted(records, 2048 * KEY_BYTES), model_of(records)
    assert totals.halvings > 0
    found = {name: (size, error, count) for name, _, size, error, count in totals.largest()}
    assert {b"large-%d" % n for n in range(20)} <= set(found)
    for name, (size, error, count) in found.items():
        true_size, true_count, *_ = model[name]
        assert size - error <= true_size <= size
        assert count <= true_count
    assert totals.largest()[0][0] == b"large-19"


def test_long_keys_are_named_by_their_beginning_but_told_apart():
    totals = counted([(b"x" * 100 + b"1", 5, False), (b"x" * 100 + b"22", 7, False)])
    assert totals.largest() == [(b"x" * 64, 102, 7, 0, 1), (b"x" * 64, 101, 5, 0, 1)]
