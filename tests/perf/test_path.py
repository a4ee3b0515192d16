"""The functions that serve a request."""

from perf.path import path_of_produce


def test_the_path_of_a_produce_goes_from_the_poll_to_the_disk_and_back():
    calls = path_of_produce()
    names = [call.function.rpartition(".")[2] for call in calls]
    places = [names.index(name) for name in ("_poll", "receive", "produce", "pwritev", "answered", "flush")]
    assert places == sorted(places)
    assert places[0] == calls[0].depth == 0
    assert names.count("produce") == names.count("pwritev") == 1
    assert {call.module.partition(".")[0] for call in calls} <= {"kafkapy", "namedtuple_AppendResult"}
    assert {"_close_idle", "_close_excess", "_trim_buffers"}.isdisjoint(names)  # done only when due
