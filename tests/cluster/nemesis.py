"""What is done to a cluster while clients use it. Each function does one thing, chosen by a random generator with a
seed, and returns a sentence for the protocol of the run and how many seconds the cluster stays so; `Cluster.heal` ends
it."""

import contextlib
import random
import shutil
import time
from collections.abc import Callable
from typing import NamedTuple

from kazoo.exceptions import NoNodeError

from tests.harness.cluster import LAG_MS, SESSION_MS, ZOOKEEPER_HOST, Cluster, Member
from tests.harness.zookeeper import eventually

BEYOND_TIMEOUTS_S = max(LAG_MS, SESSION_MS) / 1000 + 2.5
WITHIN_SESSION_S = SESSION_MS / 1000 / 2


class Done(NamedTuple):
    """What was done, in words, and for how many seconds it stays so."""

    what: str
    seconds: float


Fault = Callable[[Cluster, random.Random], Done]


def _any(cluster: Cluster, rng: random.Random) -> Member:
    return cluster[rng.choice(sorted(cluster.members))]


def _controller(cluster: Cluster, rng: random.Random) -> Member:
    number = cluster.controller()
    return cluster[number] if number in cluster.members else _any(cluster, rng)


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
    """Leave one broker: what it leads has fewer in-sync replicas than min.insync.replicas."""
    left = _any(cluster, rng)
    for member in cluster.members.values():
        if member is not left:
            member.kill()
    return Done(f"kill all but broker {left.number}", rng.choice((1, BEYOND_TIMEOUTS_S)))


def kill_all(cluster: Cluster, rng: random.Random) -> Done:
    for member in cluster.members.values():
        member.kill()
    return Done("kill all", rng.choice((0, BEYOND_TIMEOUTS_S)))


def stop_one(cluster: Cluster, rng: random.Random) -> Done:
    """Stop a broker with SIGTERM; when it starts at once, its predecessor's session has been closed."""
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
    """Restart a broker while the controller is frozen, so that it sees only the new registration (KIP-380). The node of
    the killed broker is removed, as if its session had expired, because the controller's own would expire by then."""
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
    for other in cluster.members:
        if other != number:
            cluster.network.separate(number, other)
    return Done(f"separate broker {number} from the other brokers", _brief_or_long(rng))


def cut_zookeeper(cluster: Cluster, rng: random.Random) -> Done:
    number = _any(cluster, rng).number
    cluster.network.separate(number, ZOOKEEPER_HOST)
    return Done(f"separate broker {number} from ZooKeeper", _brief_or_long(rng))


def cut_zookeeper_from_controller(cluster: Cluster, rng: random.Random) -> Done:
    number = _controller(cluster, rng).number
    cluster.network.separate(number, ZOOKEEPER_HOST)
    return Done(f"separate the controller, broker {number}, from ZooKeeper", _brief_or_long(rng))


def leave_with_clients_only(cluster: Cluster, rng: random.Random) -> Done:
    """Separate one broker from ZooKeeper and from the other brokers: only clients reach it."""
    number = _any(cluster, rng).number
    for other in [*cluster.members, ZOOKEEPER_HOST]:
        if other != number:
            cluster.network.separate(number, other)
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
            partition: sorted(state.replicas, key=lambda replica: replica != number)
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
    """Take one broker's replica of a partition away and give it back: its log is deleted and fetched anew."""
    topic, partition = _partition(cluster, rng)
    replicas = cluster.stored_view()[topic, partition].replicas
    left = rng.sample(replicas, len(replicas) - 1)
    (gone,) = set(replicas) - set(left)
    cluster.move(topic, {partition: left})
    cluster.move(topic, {partition: rng.sample([*left, gone], len(replicas))})
    return Done(f"take {topic}-{partition} away from broker {gone} and give it back", 0)


def change_leaders(cluster: Cluster, rng: random.Random) -> Done:
    """Put the replicas of all partitions of a topic in another order, and let the first ones be elected."""
    topic, _ = _partition(cluster, rng)
    parts = {key[1]: state.replicas for key, state in cluster.stored_view().items() if key[0] == topic}
    cluster.move(topic, {partition: rng.sample(replicas, len(replicas)) for partition, replicas in parts.items()})
    cluster.elect_preferred([topic])
    return Done(f"elect other leaders for {topic}", 1)


def _partition(cluster: Cluster, rng: random.Random) -> tuple[str, int]:
    """Return a partition; everything is quiet then, so that it can be moved."""
    view = cluster.wait_until_quiet()
    return rng.choice(sorted(key for key in view if not key[0].startswith("__")))


def lose_disk(cluster: Cluster, rng: random.Random) -> Done:
    """Replace a broker's log directory by an empty one while the other replicas are in sync."""
    cluster.wait_until_quiet()
    member = _any(cluster, rng)
    member.stop()
    shutil.rmtree(member.data)
    return Done(f"empty the log directory of broker {member.number}", rng.choice((0, BEYOND_TIMEOUTS_S)))


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
    )
}
