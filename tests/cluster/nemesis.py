"""Faults of a cluster while clients use it. Each function causes one fault, with choices by a seeded random generator.
It returns a sentence for the log of the run, and for how many seconds the fault should last. `Cluster.heal` ends it."""

import contextlib
import random
import shutil
import time
from collections.abc import Callable
from typing import NamedTuple

from kazoo.exceptions import NoNodeError

from tests.harness.cluster import LAG_MS, SESSION_MS, Cluster, Member
from tests.harness.waiting import eventually

BEYOND_TIMEOUTS_S = max(LAG_MS, SESSION_MS) / 1000 + 2.5
WITHIN_SESSION_S = SESSION_MS / 1000 / 2


class Done(NamedTuple):
    """A fault in words, and for how many seconds it should last."""

    what: str
    seconds: float


Fault = Callable[[Cluster, random.Random], Done]


def _working(cluster: Cluster) -> list[Member]:
    """Return the brokers that run, and are neither frozen nor being stopped."""
    return [each for each in cluster.members.values() if each.running and not each.frozen and not each.stopping]


def _any(cluster: Cluster, rng: random.Random) -> Member:
    """Return one of the working brokers. There must be one."""
    return rng.choice(_working(cluster))


def _controller(cluster: Cluster, rng: random.Random) -> Member:
    number = cluster.controller()
    working = [member for member in _working(cluster) if member.number == number]
    return working[0] if working else _any(cluster, rng)


def _brief_or_long(rng: random.Random) -> float:
    return rng.choice((WITHIN_SESSION_S, BEYOND_TIMEOUTS_S))


def kill_one(cluster: Cluster, rng: random.Random) -> Done:
    member = _any(cluster, rng)
    member.kill()
    return Done(f"kill broker {member.number}", rng.choice((0, BEYOND_TIMEOUTS_S)))


def kill_controller(cluster: Cluster, rng: random.Random) -> Done:
    member = _controller(cluster, rng)
    member.kill()
    return Done(f"kill the controller, broker {member.number}", rng.choice((0, BEYOND_TIMEOUTS_S)))


def kill_most(cluster: Cluster, rng: random.Random) -> Done:
    """Kill all brokers but one. Its partitions then have fewer in-sync replicas than min.insync.replicas."""
    left = _any(cluster, rng)
    for member in cluster.members.values():
        if member is not left and member.running:
            member.kill()
    return Done(f"kill all but broker {left.number}", rng.choice((1, BEYOND_TIMEOUTS_S)))


def kill_all(cluster: Cluster, rng: random.Random) -> Done:
    for member in cluster.members.values():
        if member.running:
            member.kill()
    return Done("kill all", rng.choice((0, BEYOND_TIMEOUTS_S)))


def stop_one(cluster: Cluster, rng: random.Random) -> Done:
    """Stop a broker with SIGTERM, so that its session is closed before the broker starts again."""
    member = _any(cluster, rng)
    member.stop()
    return Done(f"stop broker {member.number}", rng.choice((0, 0, 3)))


def freeze_one(cluster: Cluster, rng: random.Random) -> Done:
    member = _any(cluster, rng)
    member.freeze()
    return Done(f"freeze broker {member.number}", _brief_or_long(rng))


def freeze_controller(cluster: Cluster, rng: random.Random) -> Done:
    member = _controller(cluster, rng)
    member.freeze()
    return Done(f"freeze the controller, broker {member.number}", _brief_or_long(rng))


def bounce_unnoticed(cluster: Cluster, rng: random.Random) -> Done:
    eventually(lambda: cluster.controller() is not None)
    controller = _controller(cluster, rng)
    member = rng.choice([each for each in cluster.members.values() if each is not controller])
    bounce_unnoticed_of(cluster, member)
    return Done(f"restart broker {member.number} while the controller, broker {controller.number}, is frozen", 0)


def bounce_unnoticed_of(cluster: Cluster, member: Member) -> None:
    """Restart a broker while the controller is frozen, so that the controller sees only the new registration (KIP-380).
    The killed broker's node is deleted instead of waiting for its session to expire: the controller's session would
    expire by then, too."""
    number = cluster.controller()
    assert number is not None
    assert number != member.number
    controller = cluster[number]
    node = f"/brokers/ids/{member.number}"
    controller.freeze()
    member.kill()
    with contextlib.suppress(NoNodeError):
        cluster.tree.delete(node)
    member.start()
    deadline = time.monotonic() + WITHIN_SESSION_S
    while cluster.tree.exists(node) is None and time.monotonic() < deadline:
        time.sleep(0.02)
    controller.thaw()


def cut_one_direction(cluster: Cluster, rng: random.Random) -> Done:
    one, other = rng.sample(sorted(cluster.members), 2)
    cluster.network.cut(one, other)
    return Done(f"lose what broker {one} sends to {other}", _brief_or_long(rng))


def cut_both_directions(cluster: Cluster, rng: random.Random) -> Done:
    one, other = rng.sample(sorted(cluster.members), 2)
    cluster.network.separate(one, other)
    return Done(f"lose what brokers {one} and {other} send to each other", _brief_or_long(rng))


def isolate(cluster: Cluster, rng: random.Random) -> Done:
    """Separate one broker from the others, but neither from ZooKeeper nor from clients."""
    number = _any(cluster, rng).number
    cluster.network.separate(number, *cluster.members)
    return Done(f"separate broker {number} from the other brokers", _brief_or_long(rng))


def cut_zookeeper(cluster: Cluster, rng: random.Random) -> Done:
    number = _any(cluster, rng).number
    cluster.network.separate(number, *cluster.zookeeper_hosts)
    return Done(f"separate broker {number} from ZooKeeper", _brief_or_long(rng))


def cut_zookeeper_from_controller(cluster: Cluster, rng: random.Random) -> Done:
    number = _controller(cluster, rng).number
    cluster.network.separate(number, *cluster.zookeeper_hosts)
    return Done(f"separate the controller, broker {number}, from ZooKeeper", _brief_or_long(rng))


def leave_with_clients_only(cluster: Cluster, rng: random.Random) -> Done:
    """Separate one broker from ZooKeeper and from the other brokers, so that only clients reach it."""
    number = _any(cluster, rng).number
    cluster.network.separate(number, *cluster.members, *cluster.zookeeper_hosts)
    return Done(f"separate broker {number} from all but clients", BEYOND_TIMEOUTS_S)


def slow_link(cluster: Cluster, rng: random.Random) -> Done:
    number = _any(cluster, rng).number
    rate = rng.choice((64, 256, 1024))
    cluster.network.slow_down(number, rate)
    return Done(f"let broker {number} send {rate} kbit/s at most", BEYOND_TIMEOUTS_S)


def move_coordinators(cluster: Cluster, rng: random.Random) -> Done:
    """Make one broker the coordinator of all groups and transactions."""
    number = _any(cluster, rng).number
    move_coordinators_to(cluster, number)
    return Done(f"make broker {number} the coordinator of all groups and transactions", rng.choice((0, 3)))


def move_coordinators_to(cluster: Cluster, number: int) -> None:
    """Move the partitions of both internal topics so that this broker leads them."""
    topics = ("__consumer_offsets", "__transaction_state")
    for topic in topics:
        moved = {
            partition: [number, *(each for each in state.replicas if each != number)][: len(state.replicas)]
            for (name, partition), state in cluster.stored_view().items()
            if name == topic
        }
        cluster.move(topic, moved)
    cluster.elect_preferred(topics)


def move_clock(cluster: Cluster, rng: random.Random) -> Done:
    member = _any(cluster, rng)
    seconds = rng.choice((-600, -60, -5, 5, 60, 600))
    member.clock.move(seconds)
    return Done(f"move broker {member.number}'s clock by {seconds} s", _brief_or_long(rng))


def move_replicas(cluster: Cluster, rng: random.Random) -> Done:
    """Reassign a partition to all of its brokers but one, and then also to a broker without a replica, which may be the
    former one: that broker fetches the log from the beginning."""
    topic, partition = _partition(cluster, rng)
    replicas = cluster.stored_view()[topic, partition].replicas
    left = rng.sample(replicas, len(replicas) - 1)
    (gone,) = set(replicas) - set(left)
    to = rng.choice(sorted(set(cluster.members) - set(left)))
    cluster.move(topic, {partition: left})
    cluster.move(topic, {partition: rng.sample([*left, to], len(replicas))})
    return Done(f"take {topic}-{partition} away from broker {gone} and give it to broker {to}", 0)


def change_leaders(cluster: Cluster, rng: random.Random) -> Done:
    """Shuffle the replicas of all partitions of a topic, and elect the preferred leaders."""
    topic, _ = _partition(cluster, rng)
    parts = {key[1]: state.replicas for key, state in cluster.stored_view().items() if key[0] == topic}
    cluster.move(topic, {partition: rng.sample(replicas, len(replicas)) for partition, replicas in parts.items()})
    cluster.elect_preferred([topic])
    return Done(f"elect other leaders for {topic}", 1)


def _partition(cluster: Cluster, rng: random.Random) -> tuple[str, int]:
    """Wait until the cluster is quiet, and return a partition, which can then be moved."""
    view = cluster.wait_until_quiet()
    return rng.choice(sorted(key for key in view if not key[0].startswith("__")))


def lose_disk(cluster: Cluster, rng: random.Random) -> Done:
    """Delete one or all of a broker's log directories while all replicas are in sync. The stopped broker starts without
    them."""
    cluster.wait_until_quiet()
    member = _any(cluster, rng)
    member.stop()
    lost = rng.choice((member.log_dirs, member.log_dirs[:1], member.log_dirs[-1:]))
    for directory in lost:
        shutil.rmtree(directory)
    names = " and ".join(directory.name for directory in lost)
    return Done(f"empty {names} of broker {member.number}", rng.choice((0, BEYOND_TIMEOUTS_S)))


# --- while a broker is stopping


def fail_while_stopping(cluster: Cluster, rng: random.Random) -> Done:
    """Begin the controlled shutdown of a broker. During the shutdown, kill or freeze this broker or the controller,
    which may be the same."""
    member = _any(cluster, rng)
    member.begin_stop()
    time.sleep(rng.choice((0.02, 0.1, 0.3, 0.6)))
    target, whose = rng.choice(((member, "it"), (_controller(cluster, rng), "the controller")))
    do = rng.choice(("kill", "freeze"))
    if target.running:
        target.kill() if do == "kill" else target.freeze()
    what = f"stop broker {member.number}, and {do} {whose}, broker {target.number}, during that"
    return Done(what, rng.choice((1, BEYOND_TIMEOUTS_S)))


def stop_controller(cluster: Cluster, rng: random.Random) -> Done:
    member = _controller(cluster, rng)
    member.stop()
    return Done(f"stop the controller, broker {member.number}", rng.choice((0, 3)))


# --- of a disk


def fail_disk(cluster: Cluster, rng: random.Random) -> Done:
    """Let one of a broker's log directories fail. It is online again after a restart of the broker."""
    member = _any(cluster, rng)
    directory = rng.choice(member.log_dirs)
    member.disk.fail(directory)
    member.restart_when_healed = True
    return Done(f"let {directory.name} of broker {member.number} fail", _brief_or_long(rng))


def fill_disk(cluster: Cluster, rng: random.Random) -> Done:
    """Let one of a broker's log directories have no free space. kafkapy continues when there is space again, while
    Apache Kafka takes the directory offline and needs a restart."""
    member = _any(cluster, rng)
    directory = rng.choice(member.log_dirs)
    member.disk.fill(directory)
    member.restart_when_healed = member.kind == "kafka"
    return Done(f"fill {directory.name} of broker {member.number}", _brief_or_long(rng))


def slow_disk(cluster: Cluster, rng: random.Random) -> Done:
    member = _any(cluster, rng)
    directory, seconds = rng.choice(member.log_dirs), rng.choice((0.02, 0.2, 1))
    member.disk.slow_down(directory, seconds)
    what = f"let each write to {directory.name} of broker {member.number} take {seconds} s longer"
    return Done(what, BEYOND_TIMEOUTS_S)


# --- of ZooKeeper


def kill_zookeeper(cluster: Cluster, rng: random.Random) -> Done:
    """Kill ZooKeeper's leader, or the only server. It is started again when the fault ends."""
    host = cluster.zookeeper.leader()
    cluster.zookeeper.servers[host].stop()
    return Done("kill ZooKeeper's leader", rng.choice((0, WITHIN_SESSION_S, BEYOND_TIMEOUTS_S)))


def freeze_zookeeper(cluster: Cluster, rng: random.Random) -> Done:
    host = cluster.zookeeper.leader()
    cluster.zookeeper.servers[host].freeze()
    return Done("freeze ZooKeeper's leader", _brief_or_long(rng))


def isolate_zookeeper(cluster: Cluster, rng: random.Random) -> Done:
    """Separate ZooKeeper's leader from its followers, from the brokers, or from both."""
    address = cluster.zookeeper.leader()
    leader = next(host for host in cluster.zookeeper_hosts if cluster.network.address(host) == address)
    followers = [host for host in cluster.zookeeper_hosts if host != leader]
    brokers = list(cluster.members)
    names = {"its followers": followers, "the brokers": brokers, "its followers and the brokers": followers + brokers}
    name = rng.choice(list(names))
    cluster.network.separate(leader, *names[name])
    return Done(f"separate ZooKeeper's leader from {name}", _brief_or_long(rng))


FAULTS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        kill_one,
        kill_controller,
        kill_most,
        kill_all,
        stop_one,
        freeze_one,
        freeze_controller,
        bounce_unnoticed,
        cut_one_direction,
        cut_both_directions,
        isolate,
        cut_zookeeper,
        cut_zookeeper_from_controller,
        leave_with_clients_only,
        slow_link,
        move_clock,
        move_replicas,
        change_leaders,
        lose_disk,
        move_coordinators,
        fail_while_stopping,
        stop_controller,
        fail_disk,
        fill_disk,
        slow_disk,
        kill_zookeeper,
        freeze_zookeeper,
        isolate_zookeeper,
    )
}
_WAIT_FOR_QUIET = {move_replicas, change_leaders, lose_disk, move_coordinators}
_LEAVE_NOTHING = {kill_all, kill_most, kill_zookeeper, freeze_zookeeper, isolate_zookeeper}


def together(first: Fault, second: Fault) -> Fault:
    """Return a fault that causes the first fault and then, while that lasts, the second."""

    def both(cluster: Cluster, rng: random.Random) -> Done:
        one = first(cluster, rng)
        time.sleep(rng.choice((0, 0.5, 2)))
        other = second(cluster, rng)
        return Done(f"{one.what}; and {other.what}", max(one.seconds, other.seconds))

    return both


def may_be_together(first: str, second: str) -> bool:
    """Return True if the two faults can be combined: the first leaves a working broker and a ZooKeeper that names the
    controller, and the second does not wait for something that the first prevents."""
    return FAULTS[first] not in _LEAVE_NOTHING and FAULTS[second] not in {*_WAIT_FOR_QUIET, bounce_unnoticed}


def suitable(cluster: Cluster, *, quiet: bool) -> list[str]:
    """Return the names of the faults that suit this cluster. A broker's only log directory must not fail, and a single
    ZooKeeper server cannot be separated from others. With `quiet=False`, leave out faults that wait for a quiet
    cluster."""
    unsuitable: set[Fault] = set() if quiet else set(_WAIT_FOR_QUIET)
    if cluster.log_dirs < 2:
        unsuitable |= {fail_disk, fill_disk}
    if len(cluster.zookeeper_hosts) < 3:
        unsuitable |= {isolate_zookeeper}
    return [name for name, fault in FAULTS.items() if fault not in unsuitable]
