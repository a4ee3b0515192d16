"""Tells the controller of a cluster that this broker stops, or that one of its log directories has failed.

Source: KafkaServer.controlledShutdown, KafkaZkClient.propagateLogDirEvent.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors, name_of
from kafkapy.metadata import paths
from kafkapy.metadata.cache import NO_CONTROLLER
from kafkapy.metadata.tree import Create, Tree, TreeError
from kafkapy.protocol.apis import CONTROLLED_SHUTDOWN
from kafkapy.runtime.threads import NoThread, Thread

if TYPE_CHECKING:
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.leaving")

_MARGIN_S = 5.0  # the link's own time-out comes first
_RETRY_S = 1.0
_DIRECTORY_FAILED = 1  # the only event of a log directory


def move_leadership_away(services: Services) -> None:
    """Ask the controller to move the leadership of this broker's partitions to other brokers, before a clean stop.

    Returns when this broker leads no partition any more that has other replicas, when there is no other controller to
    ask, or when all tries have failed. The broker must serve its clients meanwhile.
    """
    config = services.config
    if not config["controlled.shutdown.enable"]:
        return
    timeout_s = config["controller.socket.timeout.ms"] / 1000
    for left in reversed(range(config["controlled.shutdown.max.retries"])):
        controller = services.cache.controller_id
        if controller in (NO_CONTROLLER, services.broker_id) and not _others(services):
            return
        outcome = _ask(services, timeout_s)
        if outcome is None:
            log.info("the leadership of this broker's partitions has moved to other brokers")
            return
        log.warning("the leadership of this broker's partitions has not moved: %s; tries left: %d", outcome, left)
        if left:
            threading.Event().wait(config["controlled.shutdown.retry.backoff.ms"] / 1000)


def _others(services: Services) -> bool:
    nodes = services.cache.nodes(services.config.inter_broker_listener)
    return any(node.id != services.broker_id for node in nodes)


def _ask(services: Services, timeout_s: float) -> str | None:
    """Send one ControlledShutdown request. Return None if no partition is left, otherwise the reason why some are."""
    link = services.peers.controller()
    if link is None:
        return "there is no controller"
    answers: SimpleQueue[tuple[Any, Exception | None]] = SimpleQueue()
    link.ask(
        CONTROLLED_SHUTDOWN,
        lambda version: CONTROLLED_SHUTDOWN.Request(broker_id=services.broker_id, broker_epoch=services.broker_epoch),
        lambda response, error: answers.put((response, error)),
        timeout_s=timeout_s,
    )
    try:
        response, error = answers.get(timeout=timeout_s + link.connect_timeout_s + _MARGIN_S)
    except Empty:
        return "the controller did not respond"
    if error is not None:
        return str(error)
    if response.error_code != Errors.NONE:
        return f"the controller answers {name_of(response.error_code)}"
    count = len(response.remaining_partitions)
    return f"{count} partitions have no other leader yet" if count else None


class DirectoryFailures:
    """Notifies the controller, through ZooKeeper, that a log directory of this broker has failed.

    The controller then sends this broker all its roles, and learns from the errors which replicas are offline. Any
    thread may call `report`, even one that holds a lock: a separate thread writes the node, and retries until ZooKeeper
    has it. If no thread can be started, `report` is called again after a delay, by `later(delay_s, call)`.
    """

    def __init__(self, tree: Tree, broker_id: int, later: Callable[[float, Callable[[], object]], object]) -> None:
        self._tree = tree
        self._later = later
        self._event = paths.to_json({"version": 1, "broker": broker_id, "event": _DIRECTORY_FAILED})
        self._stopped = threading.Event()
        self._thread: Thread | None = None

    def report(self) -> None:
        """Write a note for the controller that a log directory has failed. Returns at once."""
        if self._stopped.is_set():
            return
        thread = Thread(self._write, "log-dir-event")
        try:
            thread.start()
        except NoThread as error:
            log.warning("the controller cannot be notified of the failed log directory yet: %s", error)
            self._later(_RETRY_S, self.report)
        else:
            self._thread = thread

    def stop(self) -> None:
        """Stop retrying."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _write(self) -> None:
        node = Create(f"{paths.LOG_DIR_EVENTS}/log_dir_event_", self._event, sequence=True)
        while not self._stopped.is_set():
            try:
                self._tree.commit([node])
                return
            except TreeError as error:
                log.warning("the controller cannot be notified of the failed log directory yet: %s", error)
                self._stopped.wait(_RETRY_S)
