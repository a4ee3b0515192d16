"""A cluster of three replicas of one partition in plain Python, around the pure functions of kafkapy.replica.

The network may lose, delay and duplicate messages; brokers are killed and restarted; the controller elects leaders from
the ISR. `Rules` are the functions under test, so that a test can break one of them and check that the model notices.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from kafkapy.replica import isr, truncation
from kafkapy.replica.isr import Follower, IsrState
from kafkapy.replica.truncation import EpochEnd

BROKERS = (0, 1, 2)
MIN_ISR = 2
MAX_LAG_S = 8.0


class Violation(AssertionError):
    """Raised when the cluster breaks a guarantee."""


class Rules(NamedTuple):
    first_fetch_offset: Callable[[int, int, int], int] = truncation.first_fetch_offset
    truncation: Callable[[EpochEnd, EpochEnd, int], tuple[int, bool]] = truncation.truncation
    may_join: Callable[..., bool] = isr.may_join
    new_high_watermark: Callable[..., int] = isr.new_high_watermark


class State(NamedTuple):
    """The partition state that the controller has written."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


class Broker:
    def __init__(self, broker_id: int) -> None:
        self.id = broker_id
        self.alive = True
        self.log: list[tuple[int, int]] = []  # (leader epoch, value)
        self.epochs: list[tuple[int, int]] = []  # (leader epoch, start offset)
        self.high_watermark = 0
        self.checkpoint = 0
        self.asked = 0  # the number of the last fetch
        self.forget()

    def forget(self) -> None:
        """Forget the state that a restart loses: the role, and a high watermark beyond the checkpoint."""
        self.leads = False
        self.leader = -1
        self.epoch = -1
        self.epoch_start = 0
        self.isr = IsrState((), -1)
        self.followers: dict[int, Follower] = {}
        self.high_watermark = min(self.checkpoint, len(self.log))

    @property
    def latest_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else -1

    def epochs_of_records(self) -> list[tuple[int, int]]:
        """Return the epochs that have records. A leader's own epoch begins before its first record."""
        starts = [*(start for _, start in self.epochs[1:]), len(self.log)]
        return [one for one, end in zip(self.epochs, starts, strict=False) if one[1] < end]

    def epoch_end(self, epoch: int) -> EpochEnd:
        """Return the result of LeaderEpochCache.end_offset_for, computed in the simplest way."""
        later = [start for known, start in self.epochs if known > epoch]
        if epoch == self.latest_epoch:
            return EpochEnd(epoch, len(self.log))
        if not later:
            return EpochEnd(-1, -1)
        return EpochEnd(max((known for known, _ in self.epochs if known <= epoch), default=epoch), later[0])

    def note_epoch(self, epoch: int, start: int) -> None:
        if epoch > self.latest_epoch:
            while self.epochs and self.epochs[-1][1] >= start:
                self.epochs.pop()
            self.epochs.append((epoch, start))

    def truncate(self, offset: int) -> None:
        del self.log[offset:]
        self.epochs = [one for one in self.epochs if one[1] < offset]
        self.high_watermark = min(self.high_watermark, offset)
        self.checkpoint = min(self.checkpoint, offset)


class Cluster:
    """One run: `step` does a random action; `settle` delivers all messages and checks that the replicas agree."""

    def __init__(self, rng: random.Random, rules: Rules) -> None:
        self.rng = rng
        self.rules = rules
        self.now = 100.0
        self.brokers = [Broker(one) for one in BROKERS]
        self.state = State(0, 0, 0, BROKERS)
        self.messages: list[tuple[Any, ...]] = []
        self.acknowledged: dict[int, int] = {}  # offset -> value, of records acknowledged to a producer
        self.values = 0
        self._announce()

    def step(self) -> None:
        self.now += self.rng.random() * 2
        live = [broker for broker in self.brokers if broker.alive]
        choice = self.rng.random()
        if choice < 0.5 and self.messages:
            self._deliver_one()
        elif choice < 0.6:
            self._produce(self.rng.choice(self.brokers))
        elif choice < 0.85 and live:
            self._fetch(self.rng.choice(live))
        elif choice < 0.9:
            self._shrink(self.brokers[self.state.leader])
        elif choice < 0.92 and live:
            broker = self.rng.choice(live)
            broker.checkpoint = self.rng.randint(min(broker.checkpoint, broker.high_watermark), broker.high_watermark)
        elif choice < 0.94:
            self._kill_or_start(self.rng.choice(self.brokers))
        elif choice < 0.96:
            self._elect(self.rng.choice(BROKERS))
        elif self.messages:
            self.messages.pop(self.rng.randrange(len(self.messages)))

    def settle(self) -> None:
        """Start all brokers, lose no more messages, and check that all logs and high watermarks become equal."""
        for broker in self.brokers:
            if not broker.alive:
                self._kill_or_start(broker)
        for _ in range(60):
            while self.messages:
                self._deliver(self.messages.pop(0))
            for broker in self.brokers:
                self._fetch(broker)
            self._shrink(self.brokers[self.state.leader])
            self.now += 1
            if any(broker.epoch < self.state.leader_epoch for broker in self.brokers):
                self._announce()
        leader = self.brokers[self.state.leader]
        for broker in self.brokers:
            if broker.log != leader.log or broker.epochs_of_records() != leader.epochs_of_records():
                raise Violation(f"the logs of brokers {broker.id} and {leader.id} differ when all is quiet")
            if broker.high_watermark != len(leader.log):
                raise Violation(f"broker {broker.id} has high watermark {broker.high_watermark} of {len(leader.log)}")
        self._check_leader(leader)

    # --- the controller

    def _announce(self) -> None:
        for broker in self.brokers:
            self.messages.append(("role", broker.id, self.state))

    def _elect(self, preferred: int) -> None:
        candidates = [one for one in self.state.isr if self.brokers[one].alive]
        if candidates:
            leader = preferred if preferred in candidates else candidates[0]
            self.state = State(leader, self.state.leader_epoch + 1, self.state.partition_epoch + 1, tuple(candidates))
            self._announce()

    def _kill_or_start(self, broker: Broker) -> None:
        """Kill a broker, or start it. The controller notices both at once, by the broker's registration."""
        broker.alive = not broker.alive
        broker.forget()
        if broker.alive:
            self.messages.append(("role", broker.id, self.state))
        if self.state.leader == broker.id or not broker.alive:
            rest = tuple(one for one in self.state.isr if one != broker.id) or self.state.isr
            self.state = self.state._replace(isr=rest, partition_epoch=self.state.partition_epoch + 1)
            self._elect(self.state.leader)

    def _alter(self, leader: int, epoch: int, partition_epoch: int, proposed: tuple[int, ...]) -> None:
        """Carry out an AlterPartition request, in the order of the controller's checks."""
        state = self.state
        answer: State | None = state
        if leader != state.leader or epoch != state.leader_epoch:
            answer = None  # FENCED_LEADER_EPOCH
        elif set(proposed) != set(state.isr):  # otherwise it repeats a change whose response was lost
            if partition_epoch != state.partition_epoch:
                answer = None  # INVALID_UPDATE_VERSION
            elif all(self.brokers[one].alive for one in proposed):
                answer = self.state = state._replace(isr=proposed, partition_epoch=partition_epoch + 1)
        self.messages.append(("altered", leader, epoch, partition_epoch, proposed, answer))

    # --- messages

    def _deliver_one(self) -> None:
        index = self.rng.randrange(len(self.messages))
        message = self.messages[index]
        if self.rng.random() > 0.1:  # otherwise the message stays in the list, and arrives twice
            self.messages.pop(index)
        self._deliver(message)

    def _deliver(self, message: tuple[Any, ...]) -> None:
        kind, target, *content = message
        if kind == "alter":
            self._alter(target, *content)
        elif self.brokers[target].alive:
            getattr(self, f"_on_{kind}")(self.brokers[target], *content)

    def _on_role(self, broker: Broker, state: State) -> None:
        if state.leader_epoch < broker.epoch or (state.leader_epoch == broker.epoch and broker.leader != -1):
            return
        again = broker.leads and state.leader == broker.id
        broker.epoch, broker.leader, broker.leads = state.leader_epoch, state.leader, state.leader == broker.id
        if not broker.leads:
            broker.followers = {}
            offset = self.rules.first_fetch_offset(broker.latest_epoch, len(broker.log), broker.high_watermark)
            broker.truncate(offset)
            return
        broker.epoch_start = len(broker.log)
        broker.note_epoch(state.leader_epoch, broker.epoch_start)
        broker.isr = IsrState(state.isr, state.partition_epoch)
        broker.followers = {
            one: isr.at_election(
                broker.followers[one] if again else None, self.now, broker.epoch_start, one in state.isr
            )
            for one in BROKERS
            if one != broker.id
        }
        if state == self.state:
            self._check_leader(broker)
        self._advance(broker)

    def _produce(self, broker: Broker) -> None:
        if broker.alive and broker.leads and len(broker.isr.isr) >= MIN_ISR:
            self.values += 1
            broker.log.append((broker.epoch, self.values))
            self._advance(broker)

    def _fetch(self, broker: Broker) -> None:
        if broker.alive and not broker.leads and broker.leader != -1:
            last = broker.log[-1][0] if broker.log else broker.latest_epoch
            epoch = broker.latest_epoch if broker.epochs else last
            broker.asked += 1  # responses to earlier fetches are ignored, as after a new connection
            asked = broker.asked
            self.messages.append(("fetch", broker.leader, broker.id, asked, broker.epoch, len(broker.log), epoch))

    def _on_fetch(self, leader: Broker, follower: int, asked: int, epoch: int, offset: int, last_epoch: int) -> None:
        if not leader.leads or epoch != leader.epoch:
            return
        diverging = None
        if last_epoch >= 0:
            end = leader.epoch_end(last_epoch)
            if end.epoch < 0:  # OFFSET_OUT_OF_RANGE: the follower asks for the leader's log end offset
                self.messages.append(("out_of_range", follower, asked, epoch, offset, len(leader.log)))
                return
            diverging = truncation.divergence(end, last_epoch, offset)
        if diverging is None and offset > len(leader.log):
            self.messages.append(("out_of_range", follower, asked, epoch, offset, len(leader.log)))
            return
        records: list[tuple[int, int]] = []
        if diverging is None:
            known = leader.followers[follower]
            leader.followers[follower] = isr.after_fetch(known, offset, 0, self.now, len(leader.log))
            self._expand(leader, follower)
            self._advance(leader)
            records = leader.log[offset : offset + self.rng.randint(1, 3)]
        self.messages.append(("records", follower, asked, epoch, offset, records, leader.high_watermark, diverging))

    def _on_records(
        self,
        broker: Broker,
        asked: int,
        epoch: int,
        offset: int,
        records: list[tuple[int, int]],
        high_watermark: int,
        diverging: EpochEnd | None,
    ) -> None:
        if not self._is_expected(broker, asked, epoch, offset):
            return
        if diverging is not None:
            cut, _ = self.rules.truncation(diverging, broker.epoch_end(diverging.epoch), len(broker.log))
            broker.truncate(cut)
            return
        for record in records:
            broker.note_epoch(record[0], len(broker.log))
            broker.log.append(record)
        broker.high_watermark = min(high_watermark, len(broker.log))

    def _on_out_of_range(self, broker: Broker, asked: int, epoch: int, offset: int, leader_end: int) -> None:
        if self._is_expected(broker, asked, epoch, offset) and leader_end < offset:
            broker.truncate(leader_end)

    def _is_expected(self, broker: Broker, asked: int, epoch: int, offset: int) -> bool:
        """Return True once, for the response to the broker's last fetch, if its role and log are unchanged."""
        if broker.leads or broker.asked != asked:
            return False
        broker.asked += 1
        return broker.epoch == epoch and offset == len(broker.log)

    # --- the leader

    def _expand(self, leader: Broker, follower: int) -> None:
        known = leader.followers[follower]
        if self.brokers[follower].alive and self.rules.may_join(
            leader.isr, follower, known, leader.high_watermark, leader.epoch_start
        ):
            self._propose(leader, (*leader.isr.isr, follower))

    def _shrink(self, leader: Broker) -> None:
        if not leader.alive or not leader.leads:
            return
        if leader.isr.proposed is not None:  # no response yet: repeat the request
            self._propose(leader, leader.isr.proposed)
        else:
            behind = isr.out_of_sync(leader.isr, leader.id, leader.followers, len(leader.log), self.now, MAX_LAG_S)
            if behind:
                self._propose(leader, tuple(one for one in leader.isr.isr if one not in behind))

    def _propose(self, leader: Broker, proposed: tuple[int, ...]) -> None:
        leader.isr = leader.isr._replace(proposed=proposed)
        self.messages.append(("alter", leader.id, leader.epoch, leader.isr.partition_epoch, proposed))

    def _on_altered(
        self, leader: Broker, epoch: int, partition_epoch: int, proposed: tuple[int, ...], state: State | None
    ) -> None:
        pending = (
            leader.leads and leader.epoch == epoch and leader.isr == IsrState(leader.isr.isr, partition_epoch, proposed)
        )
        if pending and state is not None:  # if None, a new role will come
            leader.isr = IsrState(state.isr, state.partition_epoch)
            self._advance(leader)

    def _advance(self, leader: Broker) -> None:
        leader.high_watermark = self.rules.new_high_watermark(
            leader.isr,
            leader.high_watermark,
            len(leader.log),
            leader.followers,
            MIN_ISR,
            self.now,
            MAX_LAG_S,
            lambda one: self.brokers[one].alive,
        )
        for offset in range(leader.high_watermark):
            value = leader.log[offset][1]
            if self.acknowledged.setdefault(offset, value) != value:
                raise Violation(f"two records were committed at offset {offset}")

    def _check_leader(self, leader: Broker) -> None:
        for offset, value in self.acknowledged.items():
            if offset >= len(leader.log) or leader.log[offset][1] != value:
                raise Violation(f"broker {leader.id} leads in epoch {leader.epoch} without offset {offset}")


def run(seed: int, steps: int, rules: Rules = Rules()) -> Cluster:  # noqa: B008
    """Run a cluster for this many random steps and deliver all messages. Raise Violation."""
    cluster = Cluster(random.Random(seed), rules)
    for _ in range(steps):
        cluster.step()
    cluster.settle()
    return cluster
