"""Plans of resets: new offsets from the committed offsets and the partitions' records."""

import pytest

from kafkapy.client.administration.admin import EARLIEST, LATEST
from kafkapy.client.administration.descriptions import FoundOffset
from kafkapy.client.groups.group_types import OffsetAndMetadata
from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.groups.reset_plan import Goal, Reset, plan_goal, plan_offsets


class Log:
    """A fake admin of partitions with a record every 10 ms, from offset 100 at 1000 ms up to offset 199."""

    def __init__(self):
        self.asked = []

    def offsets(self, wanted):
        self.asked += wanted.values()
        return {where: FoundOffset(self._offset(at), -1) for where, at in wanted.items()}

    def _offset(self, at):
        if at in (EARLIEST, LATEST):
            return 100 if at == EARLIEST else 200
        assert at >= 0
        return -1 if at >= 2000 else max(100, at // 10)


@pytest.fixture
def plan():
    """Return a function that plans a goal for t-0 (committed: 150) and t-1 (nothing committed), as (new offset, note)
    pairs."""

    def make(goal, number=0, partitions=(("t", 1), ("t", 0))):
        lines = plan_goal(Log(), "g", partitions, {("t", 0): OffsetAndMetadata(150)}, goal, number)
        assert [line[:4] for line in lines] == [
            ("g", *where, 150 if where == ("t", 0) else None) for where in sorted(partitions)
        ]
        return [line[4:] for line in lines]

    return make


def test_to_the_beginning_and_to_the_end(plan):
    assert plan(Goal.EARLIEST) == [(100, ""), (100, "")]
    assert plan(Goal.LATEST) == [(200, ""), (200, "")]


def test_to_the_committed_offset_or_else_to_the_end(plan):
    assert plan(Goal.CURRENT) == [(150, ""), (200, "nothing was committed: the end")]


def test_to_a_time_or_to_the_end_if_no_record_is_so_late(plan):
    assert plan(Goal.TIME, 1230) == [(123, ""), (123, "")]
    assert plan(Goal.TIME, 5000) == [(200, "no record since then: the end")] * 2


def test_a_time_before_all_times_is_the_beginning(plan):
    assert plan(Goal.TIME, -1) == plan(Goal.AGE, 10**30) == [(100, ""), (100, "")]


def test_an_age_means_that_time_before_now(plan, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 2.0)
    assert plan(Goal.AGE, 500) == [(150, ""), (150, "")]


def test_to_an_offset_limited_to_those_of_the_log(plan):
    assert plan(Goal.OFFSET, 120) == [(120, ""), (120, "")]
    assert plan(Goal.OFFSET, 200) == [(200, ""), (200, "")]
    assert plan(Goal.OFFSET, 201) == [(200, "201 is after the end")] * 2
    assert plan(Goal.OFFSET, 99) == [(100, "99 is before the first record")] * 2


def test_a_shift_is_relative_to_the_committed_offset(plan):
    assert plan(Goal.SHIFT, -10, [("t", 0)]) == [(140, "")]
    assert plan(Goal.SHIFT, 10, [("t", 0)]) == [(160, "")]
    assert plan(Goal.SHIFT, 1000, [("t", 0)]) == [(200, "1150 is after the end")]
    assert plan(Goal.SHIFT, -1000, [("t", 0)]) == [(100, "-850 is before the first record")]


def test_partitions_without_a_committed_offset_cannot_be_shifted(plan):
    with pytest.raises(ToolError, match="group 'g' has committed nothing for t:1, so there is nothing to shift there"):
        plan(Goal.SHIFT, 1)


def test_each_partition_can_have_an_offset_of_its_own():
    assert plan_offsets(Log(), "g", {("t", 1): 120, ("t", 0): 500}, {("t", 1): OffsetAndMetadata(3)}) == [
        Reset("g", "t", 0, None, 200, "500 is after the end"),
        Reset("g", "t", 1, 3, 120, ""),
    ]


def test_no_request_is_sent_for_no_partitions():
    log = Log()
    assert plan_goal(log, "g", [], {}, Goal.LATEST, 0) == []
    assert log.asked == []
