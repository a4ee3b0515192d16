"""The time of each step of a request."""

from perf import steps


def test_each_step_of_a_request_has_its_own_time_and_that_of_the_bare_call():
    broker, bare = steps.broker_steps(40), steps.bare_calls(40)
    assert {"decode", "append: pwritev", "encode", "send: sendmsg"} <= set(broker[steps.PRODUCE])
    assert {"decode", "fetch: find the bytes", "encode", "send: sendmsg"} <= set(broker[steps.FETCH])
    assert "append: pwritev" not in broker[steps.FETCH]
    for what in (steps.PRODUCE, steps.FETCH):
        assert set(bare[what]) < {label for _, _, label in steps.STEPS}
    lines = steps.table(broker, bare).splitlines()
    assert {line.count("|") for line in lines} == {6}
    assert lines[-1].startswith("| **all** |")


def test_the_time_of_a_step_excludes_the_steps_that_it_calls():
    clock = steps.Clock()
    inner = clock.wrap("inner", lambda: sum(range(200_000)))
    clock.wrap("outer", lambda: inner())()
    assert clock.own["inner"][0] > 5 * clock.own["outer"][0]


def test_restore_brings_the_original_functions_back():
    before = [getattr(place, name) for place, name, _ in steps.STEPS]
    clock = steps.Clock()
    clock.install()
    assert before != [getattr(place, name) for place, name, _ in steps.STEPS]
    clock.restore()
    assert before == [getattr(place, name) for place, name, _ in steps.STEPS]
