"""An authorizer that asks a class of the operator, named as MODULE:CLASS by `authorizer.class.name`.

The class is created with the broker's settings, a dict of texts, and has the methods of Kafka's Authorizer:

    authorize(client, actions)                     returns a list with True or False for each action
    acls(filter)                                   returns the ACLs that a filter selects (optional)
    create(client, acls)                           stores ACLs (optional)
    delete(client, filters)                        returns a list with the deleted ACLs for each filter (optional)
    authorize_by_resource_type(client, operation, resource_type)
                                                   returns True or False (optional; without it, the ACLs decide)
    generation                                     a number that is different after every change of the rules (optional)

`client` is a HookClient; actions, ACLs and filters are Action, Binding and Filter. An answer of `authorize` is
remembered only if there is a generation. It is then used again for the same principal, host, listener, API and action,
so a class that looks at `client_id` or `version` must not have a generation. A method that raises denies. One that does
not return in time denies, too, and while all threads for calls are held by such methods, everything is denied at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.acls import Deletion
from kafkapy.metadata.topic_rules import MAX_NAME_LENGTH
from kafkapy.runtime.disk_pool import DiskPool, PoolStopped
from kafkapy.runtime.threads import NoThread
from kafkapy.security.acls.bindings import Binding, Filter
from kafkapy.security.acls.hosts import host_text
from kafkapy.security.acls.index import index_of
from kafkapy.security.acls.rules import Client, is_allowed_on_some
from kafkapy.server.admission import Action

if TYPE_CHECKING:
    from kafkapy.server.authorization.audit import Audit
    from kafkapy.server.call import Call

log = logging.getLogger("kafkapy.server.authorization")

THREADS: Final = 8  # threads that handle requests, and as many that call the class
_QUIET_S: Final = 10.0  # the least time between two reports of failures of the class
_MOST_KNOWN: Final = 100_000  # answers that are remembered
_LONGEST_KNOWN: Final = MAX_NAME_LENGTH  # characters of a resource's name for which answers are remembered
_Known = dict[tuple[str, str, str, str, Action], bool]  # by principal, host, listener, API and action


class HookClient(NamedTuple):
    """The client that asks, as the operator's class sees it."""

    principal: str
    host: str
    listener: str
    client_id: str
    api: str
    version: int


class _Failed(Exception):
    """Raised if a method of the class has raised, has not returned in time, or has returned an invalid value."""


class HookAuthorizer:
    """Asks a class of the operator; implements `kafkapy.server.admission.Authorizer`.

    Its methods block, so the dispatcher handles the requests of clients on `pool`. A call of the class runs on another
    thread, so that the request can be answered when the call does not return in time.
    """

    def __init__(self, name: str, hook: Any, timeout_s: float, audit: Audit) -> None:
        self._name = name
        self._hook = hook
        self._timeout_s = timeout_s
        self._audit = audit
        self.pool = DiskPool(THREADS, "authorizer")
        self._calls = DiskPool(THREADS, "authorizer-class")
        self._lock = threading.Lock()
        self._late = 0  # calls that have not returned in time and are still running
        self._reported_at = -_QUIET_S
        self._known: _Known = {}
        self._known_in: int | None = None  # the generation of `_known`

    @property
    def generation(self) -> int | None:
        if self._audit.notes_allowed:
            return None
        try:
            generation = self._hook.generation
        except Exception:  # AttributeError: it has none
            return None
        return generation if type(generation) is int else None

    def denied(
        self, call: Call, actions: Collection[Action], *, logged: bool = True, grants: bool = True
    ) -> Collection[Action]:
        client = _client(call)
        counts = Counter(actions)
        answers = self._answers(client, list(counts))
        seen = Client(client.principal, client.host)
        for action, count in counts.items():
            self._audit.decided(call, seen, action, answers[action], count, logged=logged, grants=grants)
        return [action for action in counts if not answers[action]]

    def _answers(self, client: HookClient, actions: list[Action]) -> dict[Action, bool]:
        """Return whether each action is allowed, from memory or from the class."""
        generation = self.generation  # before the class is asked: an answer may be newer, never older
        known = self._known_of(generation)
        keys = {action: (client.principal, client.host, client.listener, client.api, action) for action in actions}
        answers = {action: known[key] for action, key in keys.items() if key in known}
        asked = [action for action in actions if action not in answers]
        if asked:
            try:
                told = self._call("authorize", client, asked)
                if not isinstance(told, Sequence) or len(told) != len(asked):
                    raise _Failed(f"authorize did not return a list of {len(asked)} answers")
            except _Failed as error:
                self._report(error)
                return dict.fromkeys(asked, False) | answers
            answers |= {action: answer is True for action, answer in zip(asked, told, strict=True)}
            if generation is not None:
                known |= {keys[action]: answers[action] for action in asked if len(action.name) <= _LONGEST_KNOWN}
        return answers

    def _known_of(self, generation: int | None) -> _Known:
        with self._lock:
            if generation is None:
                return {}
            if generation != self._known_in or len(self._known) >= _MOST_KNOWN:
                self._known, self._known_in = {}, generation
            return self._known

    def allowed_on_some(self, call: Call, operation: str, resource_type: str) -> bool:
        client = _client(call)
        seen = Client(client.principal, client.host)
        try:
            if hasattr(self._hook, "authorize_by_resource_type"):
                allowed = self._call("authorize_by_resource_type", client, operation, resource_type) is True
            elif hasattr(self._hook, "acls"):
                index = index_of(self._call("acls", Filter(resource_type)))
                allowed = is_allowed_on_some(index, seen, operation, resource_type, everyone_without_acls=False)
            else:
                allowed = False
        except _Failed as error:
            self._report(error)
            allowed = False
        self._audit.decided(call, seen, Action(operation, resource_type, "NONE"), allowed, 0, pattern_type="UNKNOWN")
        return allowed

    def find(self, which: Filter) -> list[Binding]:
        return list(self._acls("acls", which))

    def create(self, call: Call, acls: Sequence[Binding]) -> list[KafkaError | None]:
        self._acls("create", _client(call), acls)
        return [None] * len(acls)

    def delete(self, call: Call, filters: Sequence[Filter]) -> list[Deletion]:
        deleted = list(self._acls("delete", _client(call), filters))
        if len(deleted) != len(filters):
            raise KafkaError(Errors.UNKNOWN_SERVER_ERROR, f"the authorizer {self._name} did not answer every filter")
        deletions = []
        for acls in deleted:
            deletion = Deletion()
            deletion.acls = dict.fromkeys(acls)
            deletions.append(deletion)
        return deletions

    def close(self) -> None:
        self.pool.stop()
        self._calls.stop(wait=False)  # a call may never return

    def _acls(self, method: str, *arguments: Any) -> Any:
        """Call a method of the class for ACLs. Raise KafkaError if the method fails, or if the class lacks it."""
        if not hasattr(self._hook, method):
            raise KafkaError(Errors.UNSUPPORTED_VERSION, f"the authorizer {self._name} does not manage ACLs")
        try:
            return self._call(method, *arguments)
        except _Failed as error:
            self._report(error)
            raise KafkaError(Errors.UNKNOWN_SERVER_ERROR, str(error)) from None

    def _call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the class and return its result. Raise _Failed if it raises, or does not return in time."""
        if self._late >= THREADS:
            raise _Failed("none of its calls returns")
        returned = threading.Event()
        outcome: list[Any] = []
        is_late = [False]

        def done(result: Any, error: BaseException | None) -> None:
            with self._lock:
                outcome[:] = [result, error]
                if is_late[0]:
                    self._late -= 1
            returned.set()

        try:
            self._calls.submit(getattr(self._hook, method), *arguments, done=done)
        except (PoolStopped, NoThread) as error:
            raise _Failed(str(error)) from None
        if not returned.wait(self._timeout_s):
            with self._lock:
                if not outcome:
                    is_late[0] = True
                    self._late += 1
        if not outcome:
            raise _Failed(f"{method} has not returned after {self._timeout_s:g} s")
        result, raised = outcome
        if raised is not None:
            raise _Failed(f"{method} raised {type(raised).__name__}: {raised}") from raised
        return result

    def _report(self, error: _Failed) -> None:
        """Log that the class has failed, a few times a minute: anybody can cause as many failures as they like."""
        now = time.monotonic()
        with self._lock:
            if now - self._reported_at < _QUIET_S:
                return
            self._reported_at = now
        why = error.__cause__
        log.error("the authorizer %s failed, and what was asked is denied: %s", self._name, error, exc_info=why)


def _client(call: Call) -> HookClient:
    connection = call.connection
    return HookClient(
        connection.principal,
        host_text(connection.peer[0]),
        connection.listener,
        call.client_id,
        call.served.api.name,
        call.version,
    )
