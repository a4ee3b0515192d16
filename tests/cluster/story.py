"""The story: the events in the cluster, step by step. Each step has a text and a function of the stage, whose result is
compared, too.

Broker 1 is the controller, broker 2 is another real one. 3, 4 and 5 are recording brokers: where they lead, the steps
send the requests of the leader. Of topics whose name begins with `random`, only the sizes are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.cluster.story_stage import Stage

PREFERRED, UNCLEAN = 0, 1
TOPIC, BROKER = 2, 4
DELETIONS, MOVES, ELECTION = "/admin/delete_topics", "/admin/reassign_partitions", "/admin/preferred_replica_election"
_DISABLED = {"features": {}, "version": 1, "status": 0}


class Step(NamedTuple):
    """A step of the story: its text, and the function that does it."""

    text: str
    do: Callable[[Stage], Any]


def moves(*partitions: tuple[str, int, list[int]]) -> dict[str, Any]:
    """Return the content of `/admin/reassign_partitions` as a tool writes it."""
    return {
        "version": 1,
        "partitions": [{"topic": topic, "partition": index, "replicas": ids} for topic, index, ids in partitions],
    }


def election(*partitions: tuple[str, int]) -> dict[str, Any]:
    """Return the content of `/admin/preferred_replica_election` as a tool writes it."""
    return {"version": 1, "partitions": [{"topic": topic, "partition": index} for topic, index in partitions]}


BEGINNING = [
    Step("three recording brokers start", lambda s: s.start(3, 4, 5)),
    Step("broker 2 starts", lambda s: s.start_other()),
    Step("a topic is created with an assignment", lambda s: s.create("a", [[3, 4, 5], [4, 5, 3], [5, 3, 4]])),
    Step("a topic with settings", lambda s: s.create("b", [[1, 2, 3], [2, 1, 4]], retention_ms="100000")),
    Step("a topic of one replica", lambda s: s.create("c", [[4]])),
    Step("a topic is created by hand", lambda s: s.write_topic("d", {0: [3, 4], 1: [2, 5]})),
    Step("partitions are added", lambda s: s.extend("c", 3, [[5], [3]])),
    Step("partitions are added by hand", lambda s: s.extend_by_hand("d", [5, 3])),
    Step("the leader takes a follower out of the ISR", lambda s: s.alter_isr("a", 0, [3, 4])),
    Step("and takes it in again", lambda s: s.alter_isr("a", 0, [3, 4, 5])),
    Step("broker 3 is gone", lambda s: s.stop(3)),
    Step("broker 3 is back", lambda s: s.start(3)),
    Step("its replicas are in sync again", lambda s: s.catch_up("a", "d")),
    Step("preferred leaders are elected", lambda s: s.elect(PREFERRED, a=[0, 1, 2])),
    Step("a partition gets another order of replicas", lambda s: s.reassign("a", {0: [4, 5, 3]})),
    Step("a partition moves to a broker that is new for it", lambda s: s.reassign("c", {0: [3]})),
    Step("its new replica is in sync", lambda s: s.catch_up("c")),
    Step("the controller's term ends", lambda s: s.move_controller()),
    Step("a topic is deleted", lambda s: s.delete("c")),
    Step("broker 2 stops", lambda s: s.stop_other()),
    Step("broker 2 starts again", lambda s: s.start_other(in_sync=[("b", 0), ("b", 1)])),
]

REFUSED_TOPICS = [
    Step("a topic that exists", lambda s: s.create("a", [[3]])),
    Step("a topic with an invalid name", lambda s: s.create("a/b", [[3]])),
    Step("a topic with a name that collides", lambda s: [s.create("x.y", [[3]]), s.create("x_y", [[3]])]),
    Step("a topic with an unknown setting", lambda s: s.create("e", [[3]], no_such="1")),
    Step("a topic with an invalid setting", lambda s: s.create("e", [[3]], retention_ms="x")),
    Step("a topic on an unknown broker", lambda s: s.create("e", [[3, 9]], check=True)),
    Step("a topic with a broker twice", lambda s: s.create("e", [[3, 3]])),
    Step("a topic with more replicas than brokers", lambda s: s.create("e", counts=(1, 9))),
    Step("a topic without partitions", lambda s: s.create("e", counts=(0, 1))),
    Step("a topic of unequal replication", lambda s: s.create("e", [[3, 4], [5]])),
    Step("a topic is only checked", lambda s: s.create("e", [[3, 4]], check=True)),
    Step("a topic that the controller spreads", lambda s: s.create("random-1", counts=(7, 3))),
    Step("it is extended", lambda s: s.extend("random-1", 9)),
    Step("fewer partitions", lambda s: s.extend("a", 2)),
    Step("as many partitions as there are", lambda s: s.extend("a", 3)),
    Step("more partitions on an unknown broker", lambda s: s.extend("a", 4, [[3, 4, 9]])),
    Step("more partitions with fewer replicas", lambda s: s.extend("a", 4, [[3]])),
    Step("more assignments than partitions", lambda s: s.extend("a", 4, [[3, 4, 5], [4, 5, 3]])),
    Step("more partitions of an unknown topic", lambda s: s.extend("no", 4)),
    Step("an unknown topic is deleted", lambda s: s.delete("no")),
    Step("two topics are deleted", lambda s: s.delete("x.y", "random-1")),
]

ISR_CHANGES = [
    Step("the same ISR again", lambda s: s.alter_isr("a", 0, [3, 4, 5], older=1)),
    Step("an ISR of an older partition epoch", lambda s: s.alter_isr("a", 0, [3, 4], older=1)),
    Step("an ISR of a later partition epoch", lambda s: s.alter_isr("a", 0, [3, 4], older=-1)),
    Step("an ISR of an older leader epoch", lambda s: s.alter_isr("a", 0, [3, 4], older_epoch=1)),
    Step("an ISR of a later leader epoch", lambda s: s.alter_isr("a", 0, [3, 4], older_epoch=-1)),
    Step("an ISR from an older broker epoch", lambda s: s.alter_isr("a", 0, [3, 4], broker_epoch=1)),
    Step("an ISR with an unknown broker", lambda s: s.alter_isr("a", 0, [3, 4, 9])),
    Step("an ISR of an unknown topic", lambda s: s.alter_isr("a", 0, [3], topic_id=b"0123456789abcdef")),
    Step("an ISR of many that is recovering", lambda s: s.alter_isr("a", 0, [3, 4], recovery=1)),
    Step("an ISR of one that is recovering", lambda s: s.alter_isr("a", 0, [3], recovery=1)),
    Step("an ISR of the leader alone", lambda s: s.alter_isr("a", 0, [3])),
    Step("an ISR of all", lambda s: s.alter_isr("a", 0, [3, 4, 5])),
    Step("an old broker writes an ISR itself", lambda s: s.write_isr("a", 1, [4, 5])),
    Step("the leader asks with the epoch that it knows", lambda s: s.alter_isr("a", 1, [4], older=1)),
    Step("the leader asks again", lambda s: s.alter_isr("a", 1, [4, 5, 3])),
    Step("a note that is not JSON", lambda s: s.note("/isr_change_notification/isr_change_", b"{")),
    Step("a note of a topic that does not exist", lambda s: s.note_isr("no", 0)),
]

BROKERS = [
    Step("broker 4 registers again at once", lambda s: s.bounce(4)),
    Step("broker 4 is in sync again", lambda s: s.catch_up("a", "d")),
    Step("preferred leaders after that", lambda s: s.elect(PREFERRED, a=[0, 1, 2], d=[0, 1, 2])),
    Step("broker 5 has another listener", lambda s: s.change_broker(5, _second_listener)),
    Step("brokers 3 and 4 are gone", lambda s: s.stop(3, 4)),
    Step("broker 5 is gone, too", lambda s: s.stop(5)),
    Step("broker 3 is the first to come back", lambda s: s.start(3)),
    Step("broker 5 comes back", lambda s: s.start(5)),
    Step("broker 4 comes back, in a rack", lambda s: s.start(4, rack="r4")),
    Step("all catch up", lambda s: s.catch_up("a", "d")),
    Step("preferred leaders of all partitions", lambda s: s.elect_all(PREFERRED)),
    Step("broker 2 is killed", lambda s: s.kill_other()),
    Step("broker 2 is started", lambda s: s.start_other(in_sync=[("b", 0), ("b", 1)])),
    Step("the preferred leader of b-1", lambda s: s.elect(PREFERRED, b=[1])),
    Step("broker 5 does not answer, while a topic is created", lambda s: s.create_while_held("f", [[5, 3], [4, 5]], 5)),
    Step("and 3 is gone meanwhile", lambda s: s.stop(3)),
    Step("broker 5 answers again", lambda s: s.recording[5].release()),
    Step("broker 3 comes back after that", lambda s: s.start(3)),
    Step("all catch up again", lambda s: s.catch_up("a", "d", "f")),
]

SHUTDOWNS = [
    Step("a controlled shutdown of an old registration", lambda s: s.shut_down(3, epoch=1)),
    Step("a controlled shutdown of broker 3", lambda s: s.shut_down(3)),
    Step("it asks again", lambda s: s.shut_down(3)),
    Step("it may not join an ISR", lambda s: s.alter_isr("a", 1, [4, 5, 3])),
    Step("it is not elected", lambda s: s.elect(PREFERRED, a=[0, 1, 2], d=[0])),
    Step("it gets no new leader", lambda s: s.create("g", [[3, 4], [4, 3]])),
    Step("nothing moves to it", lambda s: s.reassign("f", {1: [4, 3]})),
    Step("a second broker shuts down", lambda s: s.shut_down(4)),
    Step("and the third", lambda s: s.shut_down(5)),
    Step("broker 3 is gone after its shutdown", lambda s: s.stop(3)),
    Step("broker 3 is back after its shutdown", lambda s: s.start(3)),
    Step("broker 4 registers again without having been gone", lambda s: s.bounce(4)),
    Step("broker 5 does, too", lambda s: s.bounce(5)),
    Step("all catch up after the shutdowns", lambda s: s.catch_up("a", "d", "f", "g")),
    Step("preferred leaders after the shutdowns", lambda s: s.elect(PREFERRED, a=[0, 1, 2], d=[0, 2], g=[0, 1])),
    Step("broker 3 shuts down once more", lambda s: s.shut_down(3)),
    Step("the controller's term ends during the shutdown", lambda s: s.move_controller()),
    Step("all catch up in the new term", lambda s: s.catch_up("a", "d", "f", "g")),
]

ELECTIONS = [
    Step("an election that is not needed", lambda s: s.elect(PREFERRED, a=[1])),
    Step("an unclean election that is not needed", lambda s: s.elect(UNCLEAN, a=[1])),
    Step("an election of unknown partitions", lambda s: s.elect(PREFERRED, a=[7], no=[0])),
    Step("a partition with a single member in its ISR", lambda s: s.create("u", [[3, 4, 5], [3, 5, 4]])),
    Step("its ISRs shrink", lambda s: [s.alter_isr("u", 0, [3]), s.alter_isr("u", 1, [3])]),
    Step("its leader is gone", lambda s: s.stop(3)),
    Step("no preferred leader", lambda s: s.elect(PREFERRED, u=[0])),
    Step("an unclean election on request", lambda s: s.elect(UNCLEAN, u=[0])),
    Step("its leader has recovered", lambda s: s.alter_isr("u", 0, [4], recovery=0)),
    Step("an unclean election by setting", lambda s: s.make_unclean(TOPIC, "u")),
    Step("its leader shrinks and recovers", lambda s: s.alter_isr("u", 1, [5, 4])),
    Step("the former leader is back", lambda s: s.start(3)),
    Step("it catches up", lambda s: s.catch_up("a", "d", "f", "g", "u")),
    Step("the setting is removed", lambda s: s.configure(TOPIC, "u", unclean_leader_election_enable=None)),
    Step("ISRs shrink once more", lambda s: [s.alter_isr("u", 0, [4]), s.alter_isr("u", 1, [5])]),
    Step("both leaders are gone", lambda s: s.stop(4, 5)),
    Step(
        "unclean elections for all, by a broker's setting",
        lambda s: s.make_unclean(BROKER, "", "u", "a", "d"),
    ),
    Step("the controller's setting is removed", lambda s: s.configure(BROKER, "", unclean_leader_election_enable=None)),
    Step("both are back", lambda s: s.start(4, 5)),
    Step("all catch up after elections", lambda s: s.catch_up("a", "d", "f", "g", "u")),
    Step("an old tool asks for elections", lambda s: s.ask(ELECTION, election(("a", 0), ("d", 0), ("no", 1)))),
    Step("it asks for nothing", lambda s: s.ask(ELECTION, election())),
    Step("it asks in invalid JSON", lambda s: s.ask_in_vain(ELECTION, b"{")),
    Step("the topic of elections is deleted", lambda s: s.delete("u")),
    Step("all preferred leaders", lambda s: s.elect_all(PREFERRED)),
]

DIRECTORIES = [
    Step("a log directory of broker 3 fails", lambda s: s.fail_directory(3, ("a", 0), ("a", 1), ("g", 0))),
    Step("its replicas are not elected", lambda s: s.elect(PREFERRED, a=[0], g=[0])),
    Step("its replicas may be in an ISR", lambda s: s.alter_isr("a", 1, [4, 5, 3])),
    Step("broker 3 restarts with another disk", lambda s: s.restart_with_disk(3)),
    Step("its replicas catch up", lambda s: s.catch_up("a", "d", "f", "g")),
    Step("a note of a broker that does not exist", lambda s: s.note_directory(9)),
    Step("preferred leaders after the failure", lambda s: s.elect(PREFERRED, a=[0], g=[0])),
]

SETTINGS = [
    Step("settings of a topic", lambda s: s.configure(TOPIC, "a", retention_ms="1000", cleanup_policy="compact")),
    Step("a setting is removed", lambda s: s.configure(TOPIC, "a", retention_ms=None)),
    Step("an invalid setting", lambda s: s.configure(TOPIC, "a", retention_ms="x")),
    Step("settings of an unknown topic", lambda s: s.configure(TOPIC, "no", retention_ms="1")),
    Step("settings by an old tool", lambda s: s.set_by_hand("d", retention_ms="5000")),
    Step("a setting of the controller's broker", lambda s: s.configure(BROKER, "1", log_cleaner_threads="2")),
    Step("it is removed", lambda s: s.configure(BROKER, "1", log_cleaner_threads=None)),
    Step("a setting of all brokers", lambda s: s.configure(BROKER, "", log_retention_ms="3600000")),
    Step("that is removed, too", lambda s: s.configure(BROKER, "", log_retention_ms=None)),
    Step("a feature", lambda s: [s.update_feature("f", 1, kind) for kind in (1, 2, 3, 4)]),
    Step("a feature of level 0", lambda s: [s.update_feature("f", 0, kind) for kind in (1, 2)]),
    Step("a feature without a name", lambda s: s.update_feature("", 1, 1)),
    Step("a controller without features has been here", lambda s: s.write("/feature", _DISABLED)),
    Step("the controller's term ends with features disabled", lambda s: s.move_controller()),
]

REASSIGNMENTS = [
    Step("a topic to be moved", lambda s: s.create("m", [[3], [4], [5], [3]])),
    Step("to no replicas", lambda s: s.reassign("m", {0: []})),
    Step("to a broker twice", lambda s: s.reassign("m", {0: [3, 3]})),
    Step("to a negative broker", lambda s: s.reassign("m", {0: [-2]})),
    Step("to a broker that does not exist", lambda s: s.reassign("m", {0: [9]})),
    Step("of a partition that does not exist", lambda s: s.reassign("m", {9: [3]})),
    Step("of a topic that does not exist", lambda s: s.reassign("no", {0: [3]})),
    Step("nothing to be cancelled", lambda s: s.reassign("m", {0: None})),
    Step("to where it is", lambda s: s.reassign("m", {0: [3]})),
    Step("more replicas", lambda s: s.reassign("m", {0: [3, 4, 5], 1: [4, 3]})),
    Step("one of them is in sync", lambda s: s.alter_isr("m", 0, [3, 5])),
    Step("all of them are", lambda s: s.catch_up("m")),
    Step("fewer replicas", lambda s: s.reassign("m", {0: [3, 4]})),
    Step("other replicas", lambda s: s.reassign("m", {0: [5, 3]})),
    Step("these are replaced", lambda s: s.reassign("m", {0: [3, 5, 4]})),
    Step("and cancelled", lambda s: s.reassign("m", {0: None})),
    Step("a move of all replicas", lambda s: s.reassign("m", {2: [4, 3]})),
    Step("its first replica is in sync", lambda s: s.alter_isr("m", 2, [5, 4])),
    Step("the move of all is cancelled", lambda s: s.reassign("m", {2: None})),
    Step("a move to a broker", lambda s: s.reassign("m", {2: [4]})),
    Step("that is gone", lambda s: s.stop(4)),
    Step("the broker is back", lambda s: s.start(4)),
    Step("its replica is in sync", lambda s: s.catch_up("m")),
    Step("a move away from the leader", lambda s: s.reassign("m", {2: [3, 5]})),
    Step("half of it is in sync", lambda s: s.alter_isr("m", 2, [4, 3])),
    Step("and the leader is gone", lambda s: s.stop(4)),
    Step("the move continues with the other leader", lambda s: s.catch_up("m")),
    Step("the first leader is back", lambda s: s.start(4)),
    Step("all catch up after moves", lambda s: s.catch_up("a", "d", "f", "g", "m")),
    Step("preferred leaders after moves", lambda s: s.elect_all(PREFERRED)),
    Step("an old tool moves partitions", lambda s: s.ask(MOVES, moves(("m", 0, [5, 4]), ("m", 3, [4])), wait=False)),
    Step("one of them is done", lambda s: s.alter_isr("m", 3, [3, 4])),
    Step("and the other", lambda s: s.catch_up("m")),
    Step("an old tool moves, a request moves elsewhere", lambda s: s.move_twice("m", 3, [5], [3])),
    Step("the later move is done", lambda s: s.catch_up("m")),
    Step("an old tool moves what does not exist", lambda s: s.ask(MOVES, moves(("no", 0, [3]), ("m", 9, [3])))),
    Step("an old tool moves to where it is", lambda s: s.ask(MOVES, moves(("m", 3, [3])))),
    Step("an old tool writes invalid JSON", lambda s: s.ask_in_vain(MOVES, b"{")),
    Step("a move is begun", lambda s: s.reassign("m", {0: [3, 4]})),
    Step("the controller's term ends meanwhile", lambda s: s.move_controller()),
    Step("the move is done in the next term", lambda s: s.catch_up("m")),
    Step("a move onto real brokers", lambda s: s.move_and_wait("b", 0, [2, 1])),
    Step("and back", lambda s: s.move_and_wait("b", 0, [1, 2])),
    Step("one more move", lambda s: s.reassign("m", {0: [5, 4]})),
    Step("more partitions during a move", lambda s: s.extend("m", 5, [[3, 4]])),
    Step("the move is cancelled", lambda s: s.reassign("m", {0: None})),
    Step("the last move", lambda s: s.reassign("m", {0: [5, 4]})),
    Step("a topic is deleted during a move", lambda s: s.delete("m", wait=False)),
    Step("the controller's term ends during that deletion", lambda s: s.move_controller()),
]

TOPIC_DELETIONS = [
    Step("a topic to be deleted", lambda s: s.create("x", [[3, 4], [4, 5], [5, 3]])),
    Step("one of its brokers is gone", lambda s: s.stop(4)),
    Step("a deletion, with a dead replica", lambda s: s.delete("x", wait=False)),
    Step("its name cannot be used", lambda s: s.create("x", [[3]])),
    Step("it cannot be moved", lambda s: s.reassign("x", {0: [3]})),
    Step("it has no elections", lambda s: s.elect(PREFERRED, x=[0])),
    Step("it cannot be extended", lambda s: s.extend("x", 5)),
    Step("it is deleted once more", lambda s: s.delete("x", wait=False)),
    Step("the dead replica is back", lambda s: s.start(4)),
    Step("its name can be used again", lambda s: s.create("x", [[5, 4]])),
    Step("all catch up after deletions", lambda s: s.catch_up("a", "d", "f", "g")),
    Step("an old tool deletes", lambda s: s.ask(f"{DELETIONS}/x", b"")),
    Step("an old tool deletes what does not exist", lambda s: s.ask(f"{DELETIONS}/no", b"")),
    Step("a deletion fails on a broken disk", lambda s: s.delete_with_failure("g", 3)),
    Step("the disk is replaced", lambda s: s.restart_with_disk(3)),
    Step("all catch up after the failure", lambda s: s.catch_up("a", "d", "f")),
    Step("a topic to be deleted across terms", lambda s: s.create("y", [[3, 4]])),
    Step("a broker of it is gone", lambda s: s.stop(3)),
    Step("its deletion waits", lambda s: s.delete("y", wait=False)),
    Step("the controller's term ends during the deletion", lambda s: s.move_controller()),
    Step("the deletion continues", lambda s: s.start(3)),
    Step("all catch up at last", lambda s: s.catch_up("a", "d", "f")),
]

BY_HAND = [
    Step("a topic on a dead broker", lambda s: s.write_topic("h", {0: [9], 1: [9, 4]})),
    Step("it gets a partition on a live one", lambda s: s.extend_by_hand("h", [5])),
    Step("a topic whose node is no JSON", lambda s: s.write("/brokers/topics/broken", b"{")),
    Step("it is mended", lambda s: s.write_topic("broken", {0: [3, 4]})),
    Step("the mended topic is deleted", lambda s: s.delete("broken")),
    Step("a topic with an invalid name in the tree", lambda s: s.write_topic_node("bad name", {0: [3]})),
    Step("the topic with an invalid name is deleted", lambda s: s.ask(f"{DELETIONS}/bad name", b"")),
    Step("its node with an invalid name is removed", lambda s: s.remove("/brokers/topics/bad name")),
    Step("settings of a topic that will be", lambda s: s.set_by_hand("old", retention_ms="7")),
    Step("a topic by a tool before Kafka 2.4", lambda s: s.write_topic("old", {0: [3, 5]})),
    Step("an old tool extends it, and drops its id", lambda s: s.write_topic("old", {0: [3, 5], 1: [4, 3]})),
    Step("the controller's term ends without an id", lambda s: s.move_controller()),
    Step("an old tool deletes it", lambda s: s.ask(f"{DELETIONS}/old", b"")),
]

TERMS = [
    Step("the term ends when nothing is to be done", lambda s: s.move_controller()),
    Step("the controller's broker restarts", lambda s: s.restart_controller()),
    Step("b is in sync", lambda s: s.until_in_sync("b", 0, 1, 2)),
    Step("and is led by the preferred replicas", lambda s: s.elect(PREFERRED, b=[0, 1])),
    Step(
        "the controller restarts, and much changes meanwhile",
        lambda s: [s.restart_controller(_much_changes), s.until_elected("later"), s.until_gone(MOVES, ELECTION)],
    ),
    Step("all catch up in the last term", lambda s: s.catch_up("a", "d", "f")),
]


def _second_listener(registration: Any) -> None:
    registration["endpoints"].append(registration["endpoints"][0].replace("PLAINTEXT", "SECOND"))
    registration["listener_security_protocol_map"]["SECOND"] = "PLAINTEXT"


def _much_changes(stage: Stage) -> None:
    stage.recording[5].stop()
    stage.write_topic_node("later", {0: [5, 4], 1: [3, 5]})
    stage.write(f"{DELETIONS}/f", b"")
    stage.write(ELECTION, election(("a", 0)))
    stage.write(MOVES, moves(("d", 0, [4])))


STORY = [
    *BEGINNING,
    *REFUSED_TOPICS,
    *ISR_CHANGES,
    *BROKERS,
    *SHUTDOWNS,
    *ELECTIONS,
    *DIRECTORIES,
    *SETTINGS,
    *REASSIGNMENTS,
    *TOPIC_DELETIONS,
    *BY_HAND,
    *TERMS,
]
