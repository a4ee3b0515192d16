"""Producer ids in blocks from the tree, also while the tree is unreachable."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.cluster import ClusterRegistry
from kafkapy.metadata.local.tree import FILE_NAME, LocalTree
from kafkapy.metadata.producer_ids import Allocated, ProducerIdBlocks, ProducerIds
from kafkapy.metadata.tree import Done, Operation, Set, TreeUnavailable
from kafkapy.runtime.threads import NoThread

BLOCK = "/latest_producer_id_block"


class FlakyTree(LocalTree):
    """A tree that can become unreachable; `lost` is how many changes fail before that is known."""

    disconnected = False
    lost = 0

    @property
    def is_reachable(self) -> bool:
        return not self.disconnected

    def submit(self, operations: list[Operation], done: Done) -> None:  # type: ignore[override]
        if self.lost:
            self.lost -= 1
            done(None, TreeUnavailable("/", "nobody answers"))
        else:
            super().submit(operations, done)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[FlakyTree]:
    tree = FlakyTree(tmp_path / FILE_NAME)
    ClusterRegistry(tree)
    yield tree
    tree.close()


def ids_of(tree: FlakyTree, broker_id: int) -> ProducerIds:
    blocks = ProducerIdBlocks(tree)
    return ProducerIds(lambda done: blocks.allocate(broker_id, done), lambda: tree.is_reachable)


def given(ids: ProducerIds) -> int | KafkaError:
    found: list[int | KafkaError] = []
    came = threading.Event()

    def done(one: int | KafkaError) -> None:
        found.append(one)
        came.set()

    ids.give(done, lambda work: work())
    assert came.wait(20)
    return found[0]


def number(ids: ProducerIds) -> int:
    found = given(ids)
    assert isinstance(found, int)
    return found


def refusal(ids: ProducerIds) -> KafkaError:
    found = given(ids)
    assert isinstance(found, KafkaError)
    return found


def settled(tree: LocalTree) -> None:
    """Wait until all submitted changes are done."""
    tree.commit([])


def test_ids_come_in_blocks_of_a_thousand_reserved_ahead(tree: FlakyTree) -> None:
    ids = ids_of(tree, 7)
    assert [number(ids) for _ in range(899)] == list(range(899))
    settled(tree)
    first = {"version": 1, "broker": 7, "block_start": "0", "block_end": "999"}
    assert json.loads(tree.get(BLOCK).data) == first
    assert number(ids) == 899
    settled(tree)
    second = {"version": 1, "broker": 7, "block_start": "1000", "block_end": "1999"}
    assert json.loads(tree.get(BLOCK).data) == second
    assert [number(ids) for _ in range(200)] == list(range(900, 1100))
    settled(tree)
    assert json.loads(tree.get(BLOCK).data) == second
    assert number(ids_of(tree, 7)) == 2000


def test_a_prefetched_block_serves_the_first_producer(tree: FlakyTree) -> None:
    ids = ids_of(tree, 7)
    ids.prefetch()
    settled(tree)
    tree.disconnected = True
    found: list[int | KafkaError] = []
    ids.give(found.append, lambda work: pytest.fail("nothing had to be waited for"))
    assert found == [0]


def test_waiting_callers_are_answered_in_the_pool(tree: FlakyTree) -> None:
    ids = ids_of(tree, 7)
    found: list[int | KafkaError] = []
    pooled: list[Callable[[], None]] = []
    ids.give(found.append, pooled.append)
    ids.give(found.append, pooled.append)
    settled(tree)
    assert not found
    for work in pooled:
        work()
    assert found == [0, 1]


def test_without_zookeeper_the_error_is_retriable(tree: FlakyTree) -> None:
    ids = ids_of(tree, 7)
    tree.disconnected = True
    assert refusal(ids).code == Errors.COORDINATOR_LOAD_IN_PROGRESS
    tree.disconnected = False
    tree.lost = 1
    assert refusal(ids).code == Errors.COORDINATOR_LOAD_IN_PROGRESS
    assert [number(ids) for _ in range(900)] == list(range(900))
    settled(tree)
    tree.disconnected = True
    assert [number(ids) for _ in range(1100)] == list(range(900, 2000)), "the blocks that are there are used up"
    assert refusal(ids).code == Errors.COORDINATOR_LOAD_IN_PROGRESS
    tree.disconnected = False
    assert number(ids) == 2000


def test_ids_are_unique_among_threads_and_brokers(tree: FlakyTree) -> None:
    managers = [ids_of(tree, 1), ids_of(tree, 2)]
    taken: list[int] = []

    def take(ids: ProducerIds) -> None:
        taken.extend([number(ids) for _ in range(1500)])

    threads = [threading.Thread(target=take, args=(managers[index % 2],)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == len(set(taken)) == 6000


def test_more_callers_than_a_block_has_ids_can_wait(tree: FlakyTree) -> None:
    ids = ids_of(tree, 1)
    found: list[int | KafkaError] = []
    held = threading.Event()
    tree.watch(BLOCK, lambda event: held.wait(20) and None)
    for _ in range(2500):
        ids.give(found.append, lambda work: work())
    held.set()
    for _ in range(4):
        settled(tree)
    assert found == list(range(2500))


def test_ids_end_before_they_overflow(tree: FlakyTree) -> None:
    last = 2**63 - 1
    block = {"version": 1, "broker": 0, "block_start": str(last - 999), "block_end": str(last)}
    tree.commit([Set(BLOCK, json.dumps(block).encode())])
    assert "no producer ids left" in refusal(ids_of(tree, 0)).message


@pytest.mark.parametrize("data", [b"{", b"[1]", b'{"version":1}', b'{"block_end":"x"}', b"\xff"])
def test_a_broken_block_is_an_error_code(tree: FlakyTree, data: bytes) -> None:
    tree.commit([Set(BLOCK, data)])
    error = refusal(ids_of(tree, 0))
    assert error.code == Errors.UNKNOWN_SERVER_ERROR
    assert "no producer id could be reserved" in error.message


def no_thread(work: Callable[[], object]) -> None:
    raise NoThread("disk-0", "out of memory")


def test_all_callers_are_answered_if_no_thread_can_be_started() -> None:
    asked: list[Allocated] = []
    found: list[int | KafkaError] = []
    ids = ProducerIds(asked.append, lambda: True)
    for _ in range(2):
        ids.give(found.append, no_thread)
    (reserved,) = asked
    reserved(range(1000))
    assert [one.code for one in found if isinstance(one, KafkaError)] == [Errors.COORDINATOR_LOAD_IN_PROGRESS] * 2


def test_a_caller_that_waits_is_answered_if_the_tree_is_lost_at_that_moment() -> None:
    asked: list[Allocated] = []
    found: list[int | KafkaError] = []
    reachable = iter([True])
    ids = ProducerIds(asked.append, lambda: next(reachable, False))
    ids.give(found.append, lambda work: work())
    (reserved,) = asked
    reserved(range(1000))
    assert found == [0]
