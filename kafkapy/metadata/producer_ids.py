"""Producer ids that no producer had before, from blocks of 1000 that are this broker's.

A block is a change of `/latest_producer_id_block`, so ids are to be had without ZooKeeper as long as a block lasts; the
next one is asked for when nine tenths of it are given away. Where there are none, and ZooKeeper is away, the answer is
COORDINATOR_LOAD_IN_PROGRESS, which clients of all ages take for a reason to ask again, and to no other. Source: Kafka's
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
_PREFETCH = BLOCK_SIZE // 10  # the ids that are left when the next block is asked for
_LAST = 2**63 - 1

Given = Callable[["int | KafkaError"], object]
# Runs a function on a thread that may wait.
InPool = Callable[[Callable[[], object]], object]


class ProducerIds:
    """For all threads; none of them waits."""

    def __init__(self, tree: Tree, broker_id: int) -> None:
        self._tree = tree
        self._broker_id = broker_id
        self._lock = threading.Lock()  # guards all that follows
        self._ids = range(0)
        self._reserve = range(0)  # the block after that
        self._asking = False
        self._waiting: list[tuple[Given, InPool]] = []

    def give(self, done: Given, in_pool: InPool) -> None:
        """Calls `done` with the next id, or with the reason why there is none: at once, or, where a block has to be
        asked for, on a thread of the pool."""
        with self._lock:
            found: int | None = None
            if self._ids or self._reserve:
                found = self._next()
            waits = found is None and self._tree.answers
            if waits:
                self._waiting.append((done, in_pool))
        self.prefetch()
        if found is not None:
            done(found)
        elif not waits:
            done(_later("ZooKeeper does not answer"))

    def prefetch(self) -> None:
        """Asks for the next block, if it is time for that."""
        with self._lock:
            if self._asking or self._reserve or len(self._ids) > _PREFETCH or not self._tree.answers:
                return
            self._asking = True
        self._ask()

    def _next(self) -> int:
        if not self._ids:
            self._ids, self._reserve = self._reserve, range(0)
        found, self._ids = self._ids[0], self._ids[1:]
        return found

    def _ask(self) -> None:
        try:
            node = self._tree.get(paths.PRODUCER_ID_BLOCK)
            ids = _block_after(node.data)
        except (KafkaError, TreeError, ValueError, KeyError, TypeError) as error:
            self._answered(error)
            return
        block = {
            "version": 1,
            "broker": self._broker_id,
            "block_start": str(ids[0]),
            "block_end": str(ids[-1]),
        }

        def taken(_: list[Any] | None, error: TreeError | None) -> None:
            if isinstance(error, BadVersion):
                self._ask()  # another broker took a block in between
            else:
                self._answered(ids if error is None else error)

        self._tree.submit([Set(paths.PRODUCER_ID_BLOCK, paths.to_json(block), node.version)], taken)

    def _answered(self, outcome: range | Exception) -> None:
        """Those who wait get their ids, or the reason why there are none; the rest of a block is kept."""
        answers: list[tuple[Given, InPool, int | KafkaError]] = []
        with self._lock:
            self._asking = False
            if isinstance(outcome, range):
                self._reserve = outcome
            waiting, self._waiting = self._waiting, []
            for done, in_pool in waiting:
                if self._ids or self._reserve:
                    answers.append((done, in_pool, self._next()))
                elif isinstance(outcome, range):
                    self._waiting.append((done, in_pool))  # more than a block's worth wait
                else:
                    answers.append((done, in_pool, _as_kafka(outcome)))
        for done, in_pool, answer in answers:
            in_pool(partial(done, answer))
        if self._waiting:
            self.prefetch()


def _block_after(data: bytes) -> range:
    """The ids behind the last block that was given out. Raises ValueError and KeyError for data that is none."""
    last = paths.from_json(data, paths.PRODUCER_ID_BLOCK)
    first = int(last["block_end"]) + 1 if last else 0
    if first > _LAST - BLOCK_SIZE:
        raise KafkaError(Errors.UNKNOWN_SERVER_ERROR, "there are no producer ids left")
    return range(first, first + BLOCK_SIZE)


def _later(why: str) -> KafkaError:
    return KafkaError(Errors.COORDINATOR_LOAD_IN_PROGRESS, f"no producer ids to be had for now: {why}")


def _as_kafka(error: Exception) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, TreeError):
        return _later(str(error))
    return KafkaError(Errors.UNKNOWN_SERVER_ERROR, f"no producer ids to be had: {error}")
