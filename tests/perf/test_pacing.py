"""Requests at a fixed rate on several connections."""

from contextlib import ExitStack

from perf import frames
from perf.measurement import KAFKAPY, Bench
from perf.pacing import pace_in_turn
from perf.raw_client import RawClient


def test_every_connection_has_its_turn_and_every_response_its_latency(bench: Bench) -> None:
    frame = frames.produce("paced", frames.batch(frames.plain_values(100, 1)), 1)
    with bench.broker(KAFKAPY) as broker, ExitStack() as ending:
        clients = [ending.enter_context(RawClient(broker.port)) for _ in range(3)]
        clients[0].create_topic("paced")
        reply = clients[0].produce_once(frame)
        latencies, lateness = pace_in_turn(clients, frame, reply, 500, 0.2)
        assert len(latencies) == len(lateness) == 100
        assert min(latencies) > 0
        assert min(lateness) >= 0
        assert clients[1].end_offset("paced") == 101
