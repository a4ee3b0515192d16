"""The offsets that a run of a load reads, and their division into batches and tasks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.spark.load.broker_side import Available
from kafkapy.spark.load.errors import LoadError
from kafkapy.spark.load.plan import SMALLEST_PIECE, batches, cut, plan
from kafkapy.spark.load.state import Topic
from kafkapy.spark.load.task import Piece

WHERE = ("t", 0)


def todo(have: list[tuple[int, int]], there: Available, **more: object) -> list[tuple[int, int]]:
    start, end = more.pop("start", None), more.pop("end", None)
    planned = plan(
        {"t": Topic("", {0: have})} if have else {},
        {WHERE: there},
        None if start is None else {WHERE: int(str(start))},
        None if end is None else {WHERE: int(str(end))},
        **more,  # type: ignore[arg-type]
    )
    return planned.todo[WHERE]


def test_a_new_partition_begins_with_its_first_record() -> None:
    assert todo([], Available(7, 50)) == [(7, 50)]


def test_a_partition_resumes_behind_its_loaded_offsets() -> None:
    assert todo([(7, 20)], Available(7, 50)) == [(20, 50)]


@pytest.mark.parametrize(("have", "first"), [([], 20), ([(0, 5)], 20), ([(0, 5), (20, 30)], 30)])
def test_offsets_that_were_left_out_are_loaded_with_an_earlier_start_only(
    have: list[tuple[int, int]], first: int
) -> None:
    topics = {"t": Topic("", {0: have}, begin={0: 20})}
    there = {WHERE: Available(0, 60)}
    assert plan(topics, there, None, None).todo == {WHERE: [(first, 60)]}
    assert plan(topics, there, {WHERE: 10}, {WHERE: 20}).todo == {WHERE: [(10, 20)]}
    with pytest.raises(LoadError, match=f"t-0 begins at offset 40, but {first} was to be loaded next"):
        plan(topics, {WHERE: Available(40, 60)}, None, None)


def test_an_earlier_start_also_loads_the_offsets_before() -> None:
    assert todo([(30, 40)], Available(0, 50), start=10) == [(10, 30), (40, 50)]


def test_loaded_offsets_are_not_loaded_again_unless_requested() -> None:
    assert todo([(0, 50)], Available(0, 50), start=10, end=20) == []
    assert todo([(0, 50)], Available(0, 50), start=10, end=20, again=True) == [(10, 20)]


def test_records_that_are_gone_end_the_load_unless_that_is_accepted() -> None:
    with pytest.raises(
        LoadError, match=r"t-0 begins at offset 30, but 20 was to be loaded next: 10 offsets were deleted"
    ):
        todo([(0, 20)], Available(30, 50))
    assert todo([(0, 20)], Available(30, 50), accept_loss=True) == [(30, 50)]


def test_a_partition_that_became_shorter_is_another_one() -> None:
    with pytest.raises(LoadError, match="t-0 ends at offset 10, but the directory has it up to 20"):
        todo([(0, 20)], Available(0, 10))


spans = st.lists(st.tuples(st.integers(0, 500), st.integers(1, 200)), max_size=4)


@given(st.dictionaries(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), spans, max_size=6), st.integers(1, 300))
def test_batches_have_every_offset_once_and_those_of_a_partition_in_order(
    lengths: dict[tuple[str, int], list[tuple[int, int]]], rows: int
) -> None:
    wanted = {}
    for where, gaps in lengths.items():
        at, pairs = 0, []
        for gap, length in gaps:
            pairs.append((at + gap, at + gap + length))
            at += gap + length
        wanted[where] = pairs
    got: dict[tuple[str, int], list[int]] = {where: [] for where in wanted}
    for batch in batches(wanted, rows):
        assert batch
        assert sum(piece.end - piece.start for piece in batch) <= max(rows, len(wanted))
        for piece in batch:
            got[piece.topic, piece.partition] += range(piece.start, piece.end)
    assert got == {where: [o for start, end in pairs for o in range(start, end)] for where, pairs in wanted.items()}


def test_a_batch_is_cut_so_that_all_tasks_have_work() -> None:
    pieces = cut([Piece("t", 0, 0, 10 * SMALLEST_PIECE), Piece("t", 1, 5, 6)], 4)
    assert pieces[-1] == Piece("t", 1, 5, 6)
    assert len(pieces) == 5
    assert [piece.start for piece in pieces[1:4]] == [piece.end for piece in pieces[:3]]
