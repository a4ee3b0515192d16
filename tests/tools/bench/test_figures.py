"""The figures of a benchmark: samples in bounded memory, the sentence about the limit, and the better way to send."""

import pytest

from kafkapy.tools.bench import figures
from kafkapy.tools.bench.board import Board
from kafkapy.tools.bench.copies.loads import COLD, HOT, Figures, Load
from kafkapy.tools.bench.copies.verdict import better, choose
from kafkapy.tools.bench.figures import History, Latency, Result, limit_sentence, result_of


@pytest.fixture
def board():
    return Board(2)


def test_figures_of_all_clients_are_added(board):
    for number, slot in enumerate(board.slots):
        slot.begin()
        for _ in range(3):
            slot.count(10, 100, 1)
            slot.took(0.001 * (number + 1))
        slot.end()
    result = result_of(board, History(lambda *_: None), False)
    assert (result.records, result.bytes, result.requests) == (60, 600, 6)
    document = result.document()
    assert document["latencyMs"]["min"] == pytest.approx(1)
    assert document["latencyMs"]["avg"] == pytest.approx(1.5)
    assert document["latencyMs"]["max"] == pytest.approx(2)
    assert document["latencyMs"]["p50"] == pytest.approx(1, rel=0.01)
    assert "ackLatencyMs" not in document
    assert len(document["samples"]) == 1


def test_samples_are_joined_when_there_are_too_many(board, monkeypatch):
    monkeypatch.setattr(figures, "MOST_SAMPLES", 10)
    now = 1000.0
    monkeypatch.setattr(figures.time, "monotonic", lambda: now)
    monkeypatch.setattr("kafkapy.tools.bench.board.time.monotonic_ns", lambda: int(now * 1e9))
    for slot in board.slots:
        slot.begin()
    history = History(lambda *_: None)
    history(board)
    for _ in range(100):
        now += 1
        board.slots[0].count(5, 50, 1)
        board.slots[0].took(0.01)
        history(board)
    assert len(history.samples) <= 10
    assert sum(sample.records for sample in history.samples) == 500
    assert sum(sample.seconds for sample in history.samples) == pytest.approx(100)
    assert all(sample.p99 == pytest.approx(0.01, rel=0.01) for sample in history.samples)


def result(share, machine=0.5, records=1000):
    latency = Latency([1], 1.0)
    return Result(records, 0, 10, 1.0, latency, None, [(0.1, 1), (share, 9)], machine, False, False)


def test_a_client_that_uses_a_whole_cpu_is_named_as_the_limit():
    assert "The client was the limit, not the broker: its busiest process used 97% of a CPU" in limit_sentence(
        result(0.97), None
    )
    assert limit_sentence(result(0.5), None) == ""
    assert "The CPUs of this machine were busy 99% of the time" in limit_sentence(result(0.5, machine=0.99), None)


def test_a_rate_that_was_not_reached_is_named_and_one_that_was_reached_has_no_limit():
    assert limit_sentence(result(0.97), 2000.0).startswith("Only 1,000 of 2,000 a second were reached. The client was")
    assert limit_sentence(result(0.97, machine=1), 1000.0) == ""


def ways(sendfile, copy, cpu=(0.3, 0.4)):
    """Return figures of both ways, with the rates of three rounds around each of the two."""
    rates = {"sendfile": sendfile, "copy": copy}
    return {
        mode: Figures([rate - 10, rate, rate + 10], [one] * 3, [0.0] * 3, [0.5] * 3)
        for (mode, rate), one in zip(rates.items(), cpu, strict=True)
    }


ONE, MANY, FROM_DISK = Load(HOT, 1), Load(HOT, 8), Load(COLD, 1)


def test_a_difference_below_the_spread_of_the_rounds_is_none():
    assert better(ways(1000, 1019)) == "either"
    assert better(ways(1000, 1021)) == "copy"
    assert better(ways(1021, 1000)) == "sendfile"


@pytest.mark.parametrize(
    ("measured", "use", "said"),
    [
        ({ONE: ways(2000, 1000), MANY: ways(3000, 1000)}, "sendfile", "sendfile (kafkapy.zero.copy.enable=true, the "),
        ({ONE: ways(2000, 1000), MANY: ways(3000, 1000)}, "sendfile", "and copy was faster nowhere."),
        ({ONE: ways(600, 1000), FROM_DISK: ways(400, 800)}, "copy", "Use copy (kafkapy.zero.copy.enable=false): 1.8"),
        ({ONE: ways(700, 1000), MANY: ways(3000, 1000)}, "sendfile", "copy was faster with: hot, 1 consumer (1.43 ×)."),
        ({ONE: ways(1000, 1005)}, "sendfile", "the rates are close, and it takes 0.75 × the CPU of copy"),
        ({ONE: ways(1000, 1005, (0.3, 0.3))}, "either", "It makes no difference here"),
    ],
)
def test_one_sentence_says_which_way_to_use(measured, use, said):
    chosen, sentence = choose(measured)
    assert chosen == use
    assert said in sentence
    assert sentence.endswith(".")
