"""Carries out the changes that other programs, such as Kafka's tools, write to the metadata tree.

Other programs write new topics and partitions, topics marked for deletion, topic settings, and requests for elections
and reassignments in `/admin`. A thread reads the paths for which a watch has fired, and compares them with the present
state. Changes by this broker fire watches too, but by then there is nothing left to do. A node that is invalid, or a
change that is impossible, is logged and left as it is. Only the controller handles topics and requests; all brokers
follow the settings. Source: KafkaController's handlers, ZkConfigManager.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from kafkapy.controller.admin_requests import AdminRequests
from kafkapy.controller.controller import ClusterController
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.controller_fence import ControllerFence, not_controller_error
from kafkapy.metadata.topics import TopicRegistry
from kafkapy.metadata.tree import CHILDREN, DELETED, Event, NoNode, Tree, TreeError, split_path
from kafkapy.runtime.threads import Thread

log = logging.getLogger("kafkapy.controller.outside")

_TOPIC_CONFIGS = f"{paths.CONFIG}/topics"
_BROKER_CONFIGS = f"{paths.CONFIG}/brokers"
_LISTS = (paths.TOPICS, _TOPIC_CONFIGS)
_REQUESTS = (paths.PREFERRED_ELECTION, paths.REASSIGNMENT)
# Paths that are read with all their children after an event at the path itself.
_WHOLE = (paths.DELETE_TOPICS, *_LISTS, _BROKER_CONFIGS, paths.ISR_CHANGES, paths.LOG_DIR_EVENTS, *_REQUESTS)
# How long to wait before a change that failed because of ZooKeeper is tried again.
_RETRY_S = 1.0


class OutsideChanges:
    """The thread that carries out changes that other programs write to the metadata tree.

    The constructor sets a watch on the tree; changes from then on are stored. Call `complete_topics`, then `start`, and
    at the end `stop`.
    """

    def __init__(
        self,
        tree: Tree,
        fence: ControllerFence,
        topics: TopicRegistry,
        controller: ClusterController,
        *,
        is_controller: Callable[[], bool],
        may_delete: Callable[[], bool],
        on_topic_settings: Callable[[str], None],
        on_broker_settings: Callable[[], None],
    ) -> None:
        """`is_controller` returns True while this broker is the controller. `may_delete` returns delete.topic.enable.
        `on_topic_settings(topic)` and `on_broker_settings()` are called when settings were written to the tree; they
        raise KafkaError for invalid settings.
        """
        self._tree = tree
        self._fence = fence
        self._topics = topics
        self._controller = controller
        self._requests = AdminRequests(tree, fence, topics, controller)
        self._is_controller = is_controller
        self._may_delete = may_delete
        self._on_topic_settings = on_topic_settings
        self._on_broker_settings = on_broker_settings
        self._condition = threading.Condition()
        self._noted: dict[str, None] = {}
        self._refused: set[str] = set()  # topics that could not be applied; new settings may change that
        self._stopped = False
        self._thread = Thread(self._run, "outside-changes")
        self._cancel = tree.watch("", self._note)

    def complete_topics(self) -> None:
        """Add the missing nodes of topics that other programs created or extended while no broker ran.

        Call this before the controller assigns leaders and followers.
        """
        for name in self._topics.names():
            self._guarded(paths.topic(name), partial(self._controller.follow, name, lead=False))

    def start(self) -> None:
        self.look_again()
        self._thread.start()

    def look_again(self) -> None:
        """Make the thread read all watched paths again.

        This is needed at the start, after a session expiry, and when this broker becomes the controller again: nobody
        has handled the changes made in the meantime.
        """
        for path in _WHOLE:
            self._remember(path)

    def stop(self) -> None:
        self._cancel()
        with self._condition:
            self._stopped = True
            self._condition.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def _note(self, event: Event) -> None:
        """Store the path that the thread has to read after a watch event.

        After a change of one topic this is the path of that topic only, because there may be thousands of topics.
        """
        path = event.path
        if path in _LISTS and event.kind == CHILDREN:
            return  # there is an event for each child too
        if path in _WHOLE or split_path(path)[0] in (*_LISTS, _BROKER_CONFIGS):
            self._remember(path)
        elif path == paths.BROKER_IDS or split_path(path)[0] == paths.BROKER_IDS:
            if self._is_controller():  # at once: the controller must not wait behind other changes to see a dead broker
                self._controller.brokers_changed()
        elif event.kind == DELETED and path.startswith(f"{paths.TOPICS}/") and path.endswith("/state"):
            self._remember(paths.topic(path.split("/")[3]))

    def _remember(self, path: str) -> None:
        with self._condition:
            self._noted[path] = None
            self._condition.notify()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._noted and not self._stopped:
                    self._condition.wait()
                if self._stopped:
                    return
                noted, self._noted = self._noted, {}
            failed = [path for path in noted if not self._guarded(path, partial(self._look, path))]
            if failed:
                with self._condition:
                    self._noted.update(dict.fromkeys(failed))
                    self._condition.wait_for(lambda: self._stopped, _RETRY_S)

    def _guarded(self, path: str, work: Callable[[], object]) -> bool:
        """Call `work()`, which handles a change at `path`, and log any error.

        Return False if the access to the tree failed, so that `work` must be called again later.
        """
        try:
            work()
        except NoNode:
            pass  # the node was deleted meanwhile, which has an event of its own
        except TreeError as error:
            log.warning("a change at %s cannot be handled yet, and will be tried again: %s", path, error)
            return False
        except KafkaError as error:
            cause = error.__cause__
            if isinstance(cause, TreeError) and not_controller_error(cause) is None:
                log.warning("a change at %s cannot be handled yet, and will be tried again: %s", path, error.message)
                return False
            if error.code == Errors.NOT_CONTROLLER:
                log.info("a change at %s is left to the present controller, another broker", path)
            else:
                log.error("a change at %s is refused: %s", path, error.message)
        except ValueError as error:
            log.error("a change at %s is ignored: %s", path, error)
        except Exception:
            log.exception("a change at %s cannot be handled", path)
        return True

    def _look(self, path: str) -> None:
        parent, name = split_path(path)
        if path == _TOPIC_CONFIGS:
            for each in self._tree.children(path):
                self._guarded(paths.config("topics", each), partial(self._on_topic_settings, each))
        elif parent == _TOPIC_CONFIGS:
            self._on_topic_settings(name)
            if self._is_controller():
                if name in self._refused:
                    self._topic(name)
                self._controller.settings_changed(name)
        elif path == _BROKER_CONFIGS or parent == _BROKER_CONFIGS:
            self._on_broker_settings()
            if self._is_controller():
                self._controller.broker_settings_changed()
        elif self._is_controller():
            self._look_as_controller(path, parent, name)

    def _look_as_controller(self, path: str, parent: str, name: str) -> None:
        if path == paths.DELETE_TOPICS:
            marked = self._tree.children(path)
            for name in marked:
                self._delete(name)
            for topic in self._topics.marked():
                if topic.name not in marked:  # another controller has finished the deletion
                    self._controller.finish_marked(topic.name)
                    self._remember(paths.topic(topic.name))  # there may be a new topic of that name
        elif path == paths.TOPICS:
            for each in self._tree.children(path):
                if not self._guarded(paths.topic(each), partial(self._topic, each)):
                    self._remember(paths.topic(each))
        elif parent == paths.TOPICS:
            self._topic(name)
            if self._tree.exists(paths.REASSIGNMENT):  # a reassignment of this topic may be complete now
                self._requests.look(paths.REASSIGNMENT)
        elif path == paths.ISR_CHANGES:
            self._take_notes(path, self._isr_changed)
        elif path == paths.LOG_DIR_EVENTS:
            self._take_notes(path, self._directory_failed)
        elif path in _REQUESTS:
            self._requests.look(path)

    def _isr_changed(self, note: Any) -> None:
        """Send all brokers the states that a broker before Kafka 2.7 has written itself, and listed in a note."""
        self._controller.isr_changed([(one["topic"], one["partition"]) for one in note.get("partitions", [])])

    def _directory_failed(self, note: Any) -> None:
        """Ask a broker that has lost a log directory which of its replicas are offline."""
        self._controller.directory_failed(int(note["broker"]))

    def _take_notes(self, path: str, handle: Callable[[Any], None]) -> None:
        """Call `handle` with the contents of each note below `path`, and delete the note, even if it is invalid."""
        for name in self._tree.children(path):
            node = self._tree.find(f"{path}/{name}")
            try:
                if node is not None:
                    handle(paths.from_json(node.data, path))
            except (ValueError, TypeError, KeyError) as error:
                log.error("the note at %s/%s is invalid and is deleted: %s", path, name, error)
            self._fence.discard(f"{path}/{name}")

    def _topic(self, name: str) -> None:
        self._refused.discard(name)
        if self._tree.exists(paths.topic(name)):
            try:
                self._controller.follow(name)
            except KafkaError:
                self._refused.add(name)
                raise
        elif name in self._topics:
            self._fence.verify()  # a former controller does not know what its successor has deleted
            log.error(
                "the node of topic %s was deleted, though the topic was not: this broker serves the topic until it "
                "stops, and sets its logs aside at the next start",
                name,
            )

    def _delete(self, name: str) -> None:
        # Read before the mark in the tree: a deletion that ends in between removes the topic and the mark.
        exists, is_marked = name in self._topics, self._topics.marked_topic(name) is not None
        if not self._tree.exists(paths.deletion_mark(name)):
            return
        if exists and self._may_delete():
            log.info("another program has marked topic %s for deletion: deleting it", name)
            self._controller.begin_deletion(name)
        elif is_marked:
            self._controller.finish_marked(name)
        else:
            reason = "delete.topic.enable=false" if exists else "there is no such topic"
            if not self._tree.exists(paths.topic(name)) and self._tree.exists(paths.config("topics", name)):
                # A controller of Kafka, which removes the topic's node before the settings, was interrupted.
                self._fence.discard(paths.config("topics", name))
                log.info("the settings of topic %s, which another controller has deleted, are removed", name)
            else:
                log.warning("another program has marked topic %s for deletion, but it is not deleted: %s", name, reason)
            self._fence.discard(paths.deletion_mark(name))
