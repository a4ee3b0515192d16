"""A short, deterministic fuzz run of every parser; tests/fuzz/run.py and run_asan.py do the long ones."""

import pytest

from tests.fuzz.loop import all_targets, run_one

NOTHING_TO_REFUSE = (
    "building",
    "segment-scan",
    "old-segments",
    "segment-check",
    "names",
    "offset_table",
    "subscriptions",
    "members",
)
TARGETS = {target.name: target for target in all_targets()}


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_inputs_are_accepted_or_refused_and_cause_no_other_error(name):
    accepted = sum(run_one(TARGETS[name], 1, number) for number in range(400))
    # If all were refused, only the first checks would have been tested; some targets have nothing to refuse.
    assert accepted > 0
    assert accepted < 400 or name in NOTHING_TO_REFUSE
