"""A power cut loses no flushed message, and no corrupt message is served afterwards."""

import os
import random

import pytest

from kafkapy.record.kafka07 import iter_messages
from tests.harness.power_cut import Loss, Platter, RecordingFiles

from .bench import Bench, contents, put

ROUNDS = int(os.environ.get("KAFKAPY_CUT_ROUNDS", "25"))


@pytest.mark.parametrize("loss", [Loss.ALL, Loss.LATEST_NAMES, Loss.ANY])
@pytest.mark.parametrize("killed_before", [False, True])
def test_flushed_bytes_survive_a_power_cut_at_any_moment(tmp_path, loss, killed_before):
    for seed in range(ROUNDS):
        rng = random.Random(f"{seed} {loss.name} {killed_before}")
        root = tmp_path / f"disk-{seed}"
        root.mkdir()
        files, history = write_for_a_while(root, rng, killed_before)
        cut_at = rng.randrange(len(files.journal) + 1)
        platter = Platter(files.journal)
        platter.play(cut_at)
        after = tmp_path / f"after-{seed}"
        platter.cut(after, loss, rng.choice((16, 512, 4096)), rng)
        start, end, everything = next((known for at, *known in reversed(history) if at <= cut_at), (0, 0, b""))
        highest_start = max((known[0] for at, *known in history), default=0)
        log = Bench(after / "d", segment_bytes=150).log()
        found = contents(log)
        assert log.start <= highest_start
        assert log.end >= end, f"seed {seed}: {end} bytes were flushed, {log.end} are left"
        assert found[max(start - log.start, 0) : end - log.start] == everything[max(start, log.start) : end]
        whole = 0
        for message in iter_messages(found):
            assert message.is_valid
            whole = message.end
        assert whole == len(found)


def write_for_a_while(root, rng, killed_before):
    """Append, flush and delete. Return the recording, and (changes so far, start, flushed, bytes) after each step."""
    files = RecordingFiles(root)
    bench = Bench(root / "d", files, segment_bytes=150, flush_messages=4)
    log = bench.log()
    everything = b""
    history = []
    for step in range(25):
        if killed_before and step == 12:
            bench.crash(files)
            log = bench.log()
        what = rng.random()
        if what < 0.75:
            everything += put(log, *(rng.randbytes(rng.randrange(40)) for _ in range(rng.randrange(1, 4))))
        elif what < 0.9:
            log.flush()
        else:
            for segment in log.segments[: rng.randrange(3)]:
                os.utime(segment.path, (0, 0))
            bench.directory.delete_old()
        history.append((len(files.journal), log.start, log.end, everything))
    return files, history
