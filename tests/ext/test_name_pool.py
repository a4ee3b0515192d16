"""Names by number: compared with a model, and numbers and memory that are used again."""

import random

from kafkapy._ext.name_pool import Names


def test_it_is_what_a_dictionary_of_counts_is() -> None:
    draw = random.Random(1)
    names = Names()
    uses: dict[bytes, int] = {}
    numbers: dict[bytes, int] = {}
    for step in range(20_000):
        name = b"name-%d" % draw.randint(0, 400 if step % 4000 < 3000 else 20)
        if uses.get(name) and draw.random() < 0.5:
            names.release(name)
            uses[name] -= 1
        else:
            number = names.take(name)
            assert numbers.setdefault(name, number) == number or not uses.get(name)
            numbers[name] = number
            uses[name] = uses.get(name, 0) + 1
        other = b"name-%d" % draw.randint(0, 400)
        assert names.find(other) == (numbers[other] if uses.get(other) else -1)
    used = {name for name, count in uses.items() if count}
    assert len(names) == len(used)
    assert len({names.find(name) for name in used}) == len(used)


def test_a_name_may_be_empty_or_hold_any_bytes() -> None:
    names = Names()
    assert names.find(b"") == -1
    first, second = names.take(b""), names.take(b"\0")
    assert first != second
    assert names.find(b"") == first
    assert names.find(b"\0") == second


def test_a_number_is_given_again() -> None:
    names = Names()
    number = names.take(b"a")
    names.release(b"a")
    assert names.take(b"b") == number
    assert names.find(b"a") == -1
