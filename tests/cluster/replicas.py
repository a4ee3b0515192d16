"""Compares the replicas of partitions by their files, in a quiet cluster."""

import time
from pathlib import Path

from tests.cluster.checker import End, Stored
from tests.cluster.history import name
from tests.cluster.segments import BadLog, Batch, committed_only, read_batches, read_epochs, records_of
from tests.harness.cluster import Cluster, View


def differences(directories: dict[int, Path]) -> list[str]:
    """Return sentences on how the replicas of one partition differ. `directories` are by broker.

    In the range of offsets that all replicas have, batches must be equal byte for byte, and the leader epochs must be
    equal. The log end offsets must be equal, too. An epoch without records is known only to its leader.
    """
    logs: dict[int, list[Batch]] = {}
    for broker, directory in directories.items():
        try:
            logs[broker] = read_batches(directory)
        except (BadLog, OSError) as problem:
            return [f"broker {broker}: {problem}"]
    ends = {broker: log[-1].last_offset + 1 if log else 0 for broker, log in logs.items()}
    if len(set(ends.values())) > 1:
        return [f"{directories[min(ends)].name}: the logs end at {ends}"]
    start = max((log[0].base_offset for log in logs.values() if log), default=0)
    (first, expected), *others = [
        (broker, [batch for batch in log if batch.last_offset >= start]) for broker, log in logs.items()
    ]
    problems = []
    for broker, log in others:
        if [batch.data for batch in log] != [batch.data for batch in expected]:
            bad = [pair for pair in zip(expected, log, strict=False) if pair[0].data != pair[1].data]
            where = bad[0][0].base_offset if bad else "the end"
            problems.append(f"{directories[broker].name} differs on brokers {first} and {broker} at {where}")
    epochs = {broker: _epochs_between(directory, start, ends[broker]) for broker, directory in directories.items()}
    if any(each != epochs[first] for each in epochs.values()):
        problems.append(f"{directories[first].name}: the leader epochs differ: {epochs}")
    return problems


def _epochs_between(directory: Path, start: int, end: int) -> list[tuple[int, int]]:
    """Return the entries of leader-epoch-checkpoint that have offsets in this range."""
    entries = read_epochs(directory)
    following = [*(offset for _, offset in entries), end][1:]
    return [
        (epoch, max(offset, start))
        for (epoch, offset), until in zip(entries, following, strict=True)
        if offset < end and until > start
    ]


def wait_until_equal(cluster: Cluster, view: View, timeout: float = 60) -> list[str]:
    """Wait until the replicas of all partitions are equal. Return how they differ after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        problems = []
        for (topic, partition), state in sorted(view.items()):
            directories = {broker: cluster[broker].replica(topic, partition) for broker in state.replicas}
            problems += differences(directories)
        if not problems or time.monotonic() > deadline:
            return problems
        time.sleep(0.5)


def read_end(cluster: Cluster, view: View, topics: list[str]) -> tuple[End, list[str]]:
    """Return the data records of the topics' partitions from the leaders' files, and problems found in these."""
    end: End = {}
    problems = []
    for (topic, partition), state in view.items():
        if topic not in topics:
            continue
        directory = cluster[state.leader].replica(topic, partition)
        committed, aborted, still_open = committed_only(read_batches(directory))
        if still_open:
            problems.append(f"{directory.name} has a transaction that is still open at {still_open[0].base_offset}")
        end[topic, partition] = sorted(
            Stored(record.offset, batch.leader_epoch, name(record.value or b""), batches is committed)
            for batches in (committed, aborted, still_open)
            for batch in batches
            for record in records_of(batch)
        )
    return end, problems
