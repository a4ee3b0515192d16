"""Allocates producer ids from blocks of 1000 that are reserved for this broker in `/latest_producer_id_block`.

A block needs a change of that node, so ids remain available without ZooKeeper as long as the block lasts; the next
block is reserved when nine tenths are used. If there are no ids and ZooKeeper is unreachable, the error is
COORDINATOR_LOAD_IN_PROGRESS, which makes clients of every version retry without any other effect. Source: Kafka's
RPCProducerIdManager, ZkProducerIdManager.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.tree import BadVersion, Set, Tree, TreeError

BLOCK_SIZE = 1000
_PREFETCH = BLOCK_SIZE // 10  # reserve the next block when so few ids are left
_LAST = 2**63 - 1

IdCallback = Callable[["int | KafkaError"], object]
# Runs a function on a thread that may block.
InPool = Callable[[Callable[[], object]], object]


Allocated = Callable[["range | Exception"], object]


class ProducerIdBlocks:
    """Reserves blocks for brokers in the metadata tree, which is the controller's part."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def allocate(self, broker_id: int, done: Allocated) -> None:
        """Call `done` with a block that no broker has, or with the error: at once, or from the tree's thread."""
        try:
            node = self._tree.get(paths.PRODUCER_ID_BLOCK)
            ids = _block_after(node.data)
        except (KafkaError, TreeError, ValueError, KeyError, TypeError) as error:
            done(error)
            return
        block = {"version": 1, "broker": broker_id, "block_start": str(ids[0]), "block_end": str(ids[-1])}

        def taken(_: list[Any] | None, error: TreeError | None) -> None:
            if isinstance(error, BadVersion):
                self.allocate(broker_id, done)  # another broker reserved a block meanwhile
            else:
                done(ids if error is None else error)

        self._tree.submit([Set(paths.PRODUCER_ID_BLOCK, paths.to_json(block), node.version)], taken)


class ProducerIds:
    """Allocates producer ids. Any thread may call the methods; none of them blocks."""

    def __init__(self, allocate: Callable[[Allocated], object], is_reachable: Callable[[], bool]) -> None:
        """`allocate(done)` asks the controller for a block, as ProducerIdBlocks does; it is only called while
        `is_reachable()`."""
        self._allocate = allocate
        self._is_reachable = is_reachable
        self._lock = threading.Lock()  # guards the following attributes
        self._ids = range(0)
        self._reserve = range(0)  # the next block
        self._is_reserving = False
        self._waiting: list[tuple[IdCallback, InPool]] = []

    def give(self, done: IdCallback, in_pool: InPool) -> None:
        """Call `done` with a new id or an error: at once, or on a pool thread if a block has to be reserved first."""
        with self._lock:
            found: int | None = None
            if self._ids or self._reserve:
                found = self._next()
            waits = found is None and self._is_reachable()
            if waits:
                self._waiting.append((done, in_pool))
        self.prefetch()
        if found is not None:
            done(found)
        elif not waits:
            done(_later("ZooKeeper does not answer"))

    def prefetch(self) -> None:
        """Reserve the next block if few ids are left."""
        with self._lock:
            if self._is_reserving or self._reserve or len(self._ids) > _PREFETCH or not self._is_reachable():
                return
            self._is_reserving = True
        self._allocate(self._finish)

    def _next(self) -> int:
        if not self._ids:
            self._ids, self._reserve = self._reserve, range(0)
        found, self._ids = self._ids[0], self._ids[1:]
        return found

    def _finish(self, outcome: range | Exception) -> None:
        """Give the waiting callers their ids or the error; keep the rest of the block."""
        results: list[tuple[IdCallback, InPool, int | KafkaError]] = []
        with self._lock:
            self._is_reserving = False
            if isinstance(outcome, range):
                self._reserve = outcome
            waiting, self._waiting = self._waiting, []
            for done, in_pool in waiting:
                if self._ids or self._reserve:
                    results.append((done, in_pool, self._next()))
                elif isinstance(outcome, range):
                    self._waiting.append((done, in_pool))  # more callers than ids in a block
                else:
                    results.append((done, in_pool, _as_kafka(outcome)))
        for done, in_pool, result in results:
            in_pool(partial(done, result))
        if self._waiting:
            self.prefetch()


def _block_after(data: bytes) -> range:
    """Return the block after the one reserved last. Raises ValueError and KeyError for invalid data."""
    last = paths.from_json(data, paths.PRODUCER_ID_BLOCK)
    first = int(last["block_end"]) + 1 if last else 0
    if first > _LAST - BLOCK_SIZE:
        raise KafkaError(Errors.UNKNOWN_SERVER_ERROR, "there are no producer ids left")
    return range(first, first + BLOCK_SIZE)


def _later(why: str) -> KafkaError:
    return KafkaError(Errors.COORDINATOR_LOAD_IN_PROGRESS, f"there are no producer ids for now: {why}")


def _as_kafka(error: Exception) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, TreeError):
        return _later(str(error))
    return KafkaError(Errors.UNKNOWN_SERVER_ERROR, f"no producer id could be reserved: {error}")
