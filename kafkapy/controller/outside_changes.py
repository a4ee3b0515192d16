"""What others write into a tree that is shared, by hand or with Kafka's tools, and the controller has to carry out.

New topics and partitions, topics marked for deletion, settings of topics, elections and reassignments asked for in
`/admin`: a thread looks at what the watches have told it of, and compares it with what is so already. Our own changes
come by here too; there is nothing left to do for them then. What cannot be read or done is named in the log, and left
alone. Source: KafkaController's handlers, ZkConfigManager.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from kafkapy.controller.admin_requests import AdminRequests
from kafkapy.controller.topic_changes import TopicController
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.office import Office
from kafkapy.metadata.topics import TopicRegistry
from kafkapy.metadata.tree import CHILDREN, DELETED, Event, NoNode, Tree, TreeError, split_path

log = logging.getLogger("kafkapy.controller.outside")

_TOPIC_CONFIGS = f"{paths.CONFIG}/topics"
_BROKER_CONFIGS = f"{paths.CONFIG}/brokers"
_LISTS = (paths.TOPICS, _TOPIC_CONFIGS)
_NOTES = (paths.ISR_CHANGES, paths.LOG_DIR_EVENTS)
_REQUESTS = (paths.PREFERRED_ELECTION, paths.REASSIGNMENT)
# What is looked at as a whole when it is new or different itself.
_WHOLE = (paths.DELETE_TOPICS, *_LISTS, _BROKER_CONFIGS, *_NOTES, *_REQUESTS)
# A pause before what ZooKeeper kept us from doing is tried again.
_RETRY_S = 1.0


class OutsideChanges:
    """Life: construct (takes note from then on), `settle`, `start`, `stop`."""

    def __init__(
        self,
        tree: Tree,
        office: Office,
        topics: TopicRegistry,
        controller: TopicController,
        *,
        may_delete: Callable[[], bool],
        on_broker_settings: Callable[[], None],
    ) -> None:
        """`may_delete` is delete.topic.enable; `on_broker_settings` is called when dynamic settings were written."""
        self._tree = tree
        self._office = office
        self._topics = topics
        self._controller = controller
        self._requests = AdminRequests(tree, office, topics, controller)
        self._may_delete = may_delete
        self._on_broker_settings = on_broker_settings
        self._news = threading.Condition()
        self._noted: dict[str, None] = {}
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="outside-changes", daemon=True)
        self._cancel = tree.watch("", self._note)

    def settle(self) -> None:
        """Before anything is led: topics that were made or grown while no broker ran get what they lack."""
        for name in self._topics.names():
            self._guarded(paths.topic(name), partial(self._controller.follow, name, lead=False))

    def start(self) -> None:
        self.look_again()
        self._thread.start()

    def look_again(self) -> None:
        """At everything: what happened while there was no session, or another controller, was told to nobody."""
        for path in _WHOLE:
            self._remember(path)

    def stop(self) -> None:
        self._cancel()
        with self._news:
            self._stopped = True
            self._news.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def _note(self, event: Event) -> None:
        """One path for each thing that changed: what there are thousands of is not looked at as a whole."""
        path = event.path
        if path in _LISTS and event.kind == CHILDREN:
            return  # each child has an event of its own
        if path in _WHOLE or split_path(path)[0] in (*_LISTS, _BROKER_CONFIGS):
            self._remember(path)
        elif event.kind == DELETED and path.startswith(f"{paths.TOPICS}/") and path.endswith("/state"):
            self._remember(paths.topic(path.split("/")[3]))

    def _remember(self, path: str) -> None:
        with self._news:
            self._noted[path] = None
            self._news.notify()

    def _run(self) -> None:
        while True:
            with self._news:
                while not self._noted and not self._stopped:
                    self._news.wait()
                if self._stopped:
                    return
                noted, self._noted = self._noted, {}
            failed = [path for path in noted if not self._guarded(path, partial(self._look, path))]
            if failed:
                with self._news:
                    self._noted.update(dict.fromkeys(failed))
                    self._news.wait_for(lambda: self._stopped, _RETRY_S)

    def _guarded(self, path: str, work: Callable[[], object]) -> bool:
        """False if it is to be tried again, because the tree could not be changed just now."""
        try:
            work()
        except NoNode:
            pass  # gone again; there is a note of that too
        except TreeError as error:
            log.warning("what was changed at %s has to wait: %s", path, error)
            return False
        except KafkaError as error:
            if error.code == Errors.NOT_CONTROLLER:
                log.info("what was changed at %s is another controller's to carry out", path)
            else:
                log.error("what was written to %s cannot be used: %s", path, error.message)
        except ValueError as error:
            log.error("what was written to %s is left alone: %s", path, error)
        except Exception:
            log.exception("what was changed at %s cannot be carried out", path)
        return True

    def _look(self, path: str) -> None:
        parent, name = split_path(path)
        if path == paths.DELETE_TOPICS:
            marked = self._tree.children(path)
            for name in marked:
                self._delete(name)
            for topic in self._topics.marked():
                if topic.name not in marked:  # another controller has finished it
                    self._controller.finish_marked(topic.name)
                    self._remember(paths.topic(topic.name))  # there may be a new one
        elif path == paths.TOPICS:
            for each in self._tree.children(path):
                self._guarded(paths.topic(each), partial(self._controller.follow, each))
        elif parent == paths.TOPICS:
            self._topic(name)
        elif path == _TOPIC_CONFIGS:
            for each in self._topics.names():
                self._guarded(paths.config("topics", each), partial(self._controller.follow_config, each))
        elif parent == _TOPIC_CONFIGS:
            self._controller.follow_config(name)
        elif path == _BROKER_CONFIGS or parent == _BROKER_CONFIGS:
            self._on_broker_settings()
        elif path in _NOTES:
            for note in self._tree.children(path):
                self._office.discard(f"{path}/{note}")
        elif path in _REQUESTS:
            self._requests.look(path)

    def _topic(self, name: str) -> None:
        if self._tree.exists(paths.topic(name)):
            self._controller.follow(name)
        elif name in self._topics:
            log.error(
                "the node of topic %s is gone without the topic having been deleted: it is served on until this broker "
                "stops, and its logs are set aside at the next start",
                name,
            )

    def _delete(self, name: str) -> None:
        if not self._tree.exists(f"{paths.DELETE_TOPICS}/{name}"):
            return
        if name in self._topics and self._may_delete():
            log.info("topic %s is to be deleted, others have asked", name)
            self._controller.delete(name)
        elif any(topic.name == name for topic in self._topics.marked()):
            self._controller.finish_marked(name)  # unless that is under way: then it is over when we may look
        else:
            reason = "delete.topic.enable=false" if name in self._topics else "there is no such topic"
            log.warning("topic %s is not deleted, though others have asked: %s", name, reason)
            self._office.discard(f"{paths.DELETE_TOPICS}/{name}")
