"""Allocates producer ids from blocks of 1000 ids. The node `/latest_producer_id_block` tells which block was reserved
last, and for which broker.

Reserving a block needs a change of that node. So a broker can still allocate ids while ZooKeeper does not answer, until
its block is used up; it reserves the next block when nine tenths are used. If no ids are left and ZooKeeper does not
answer, the error is COORDINATOR_LOAD_IN_PROGRESS, which makes clients of every version retry without any other effect.
Source: Kafka's RPCProducerIdManager, ZkProducerIdManager.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.tree import BadVersion, Set, Tree, TreeError
from kafkapy.runtime.disk_pool import PoolStopped
from kafkapy.runtime.threads import NoThread

BLOCK_SIZE = 1000
_PREFETCH = BLOCK_SIZE // 10  # reserve the next block when only this many ids are left
_LAST = 2**63 - 1

IdCallback = Callable[["int | KafkaError"], object]
# Runs a function on a thread that may block. May raise NoThread or PoolStopped.
InPool = Callable[[Callable[[], object]], object]


Allocated = Callable[["range | Exception"], object]


class ProducerIdBlocks:
    """Reserves blocks of producer ids for brokers in the metadata tree. This is the controller's side of
    AllocateProducerIds."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def allocate(self, broker_id: int, done: Allocated) -> None:
        """Reserve a block of producer ids for a broker. Call `done` with the block, a range that no other broker gets,
        or with the error, either at once or later on the metadata tree's thread."""
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
    """Allocates producer ids for this broker. Any thread may call the methods; none of them blocks."""

    def __init__(self, allocate: Callable[[Allocated], object], is_reachable: Callable[[], bool]) -> None:
        """`allocate(done)` reserves a block of producer ids and calls `done` with the block or an error, like
        ProducerIdBlocks.allocate. It is called only while `is_reachable()` is True, or if a caller already waits."""
        self._allocate = allocate
        self._is_reachable = is_reachable
        self._lock = threading.Lock()  # guards the following attributes
        self._ids = range(0)
        self._reserve = range(0)  # the next block
        self._is_reserving = False
        self._waiting: list[tuple[IdCallback, InPool]] = []

    def give(self, done: IdCallback, in_pool: InPool) -> None:
        """Call `done` with a new producer id or a KafkaError: at once if an id is left or none can be reserved,
        otherwise when a block has been reserved, on a pool thread through `in_pool`."""
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
        """Begin to reserve the next block of producer ids if at most a tenth of a block is left."""
        with self._lock:
            if self._is_reserving or self._reserve or len(self._ids) > _PREFETCH:
                return
            if not self._waiting and not self._is_reachable():
                return
            self._is_reserving = True
        self._allocate(self._finish)

    def _next(self) -> int:
        if not self._ids:
            self._ids, self._reserve = self._reserve, range(0)
        found, self._ids = self._ids[0], self._ids[1:]
        return found

    def _finish(self, outcome: range | Exception) -> None:
        """Handle a newly reserved block of producer ids, or the error: give an id or the error to each waiting caller,
        and keep the rest of the block."""
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
            try:
                in_pool(partial(done, result))
            except (NoThread, PoolStopped) as error:
                done(_later(str(error)))  # an error needs no thread that may block
        if self._waiting:
            self.prefetch()


def _block_after(data: bytes) -> range:
    """Return the block of producer ids after the block in `data`, which was reserved last. Raises ValueError or
    KeyError for invalid data, and KafkaError if no producer ids are left."""
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
