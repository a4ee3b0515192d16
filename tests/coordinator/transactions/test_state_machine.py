"""Random requests, failing appends, slow markers and restarts: what must hold of transactions whatever happens."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafkapy.coordinator.shard import Producer
from kafkapy.coordinator.transaction_records import STATES, TransactionState, decode_key
from kafkapy.coordinator.transactions.transitions import TopicPartition, one_by_one
from kafkapy.errors import Errors, KafkaError
from tests.coordinator.transactions.world import World, replay

NAMES = ("a", "b")
PARTITIONS = (("t", 0), ("t", 1), ("u", 0))

# Kafka's validPreviousStates; "-" is an id that is not known. A fence goes from Ongoing straight to PrepareAbort.
MAY_FOLLOW = {
    "Empty": {"-", "Empty", "CompleteCommit", "CompleteAbort"},
    "Ongoing": {"Ongoing", "Empty", "CompleteCommit", "CompleteAbort"},
    "PrepareCommit": {"Ongoing"},
    "PrepareAbort": {"Ongoing"},
    "CompleteCommit": {"PrepareCommit"},
    "CompleteAbort": {"PrepareAbort"},
    "-": {"Empty", "CompleteCommit", "CompleteAbort"},
}
RETRIABLE_OR_RIGHT = {
    Errors.NONE,
    Errors.CONCURRENT_TRANSACTIONS,
    Errors.PRODUCER_FENCED,
    Errors.INVALID_PRODUCER_ID_MAPPING,
    Errors.INVALID_TXN_STATE,
    Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.NOT_COORDINATOR,
}

names = st.sampled_from(NAMES)


class CheckedWorld(World):
    """No transaction is both committed and aborted: a marker says what the log said before, of that transaction."""

    def on_marker(self, producer: Producer, commit: bool, partition: TopicPartition) -> None:
        decided = [state for state in self.states_in_log() if state is not None and state.producer_id == producer.id][
            -1
        ]
        assert decided.state_name == ("PrepareCommit" if commit else "PrepareAbort")
        assert decided.producer_epoch == producer.epoch
        assert partition in one_by_one(decided.partitions)


class Transactions(RuleBasedStateMachine):
    """Clients that remember the producers they were given, and mix them up."""

    def __init__(self) -> None:
        super().__init__()
        self.world = CheckedWorld()
        self.world.settings = self.world.settings._replace(expiration_ms=500_000, expire_interval_ms=100_000)
        self.world.restart()
        self.given: dict[str, list[Producer]] = {name: [] for name in NAMES}
        self.asked = self.answered = 0

    def _producer(self, name: str, data: st.DataObject) -> Producer:
        known = [*self.given[name], Producer(1, 0)]
        return known[max(0, len(known) - 2 - data.draw(st.sampled_from([0, 0, 0, 0, 1, -1])))]

    def _code(self, code: int) -> None:
        self.answered += 1
        assert code in RETRIABLE_OR_RIGHT

    # --- what clients do

    @rule(name=names, timeout_ms=st.sampled_from([1000, 60_000]), go_on=st.booleans(), data=st.data())
    def init(self, name: str, timeout_ms: int, go_on: bool, data: st.DataObject) -> None:
        expected = self._producer(name, data) if go_on else None

        def answer(code: int, producer: Producer) -> None:
            self._code(code)
            if code == Errors.NONE:
                if go_on and self.given[name] and producer == self.given[name][-1]:
                    return  # the retry of a request that was answered
                assert producer not in self.given[name], "an epoch went back"
                self.given[name].append(producer)

        self.asked += 1
        self.world.coordinator.init_producer_id(name, timeout_ms, expected, answer)

    @rule(name=names, partitions=st.sets(st.sampled_from(PARTITIONS), min_size=1), data=st.data())
    def add(self, name: str, partitions: set[tuple[str, int]], data: st.DataObject) -> None:
        self.asked += 1
        self.world.coordinator.add_partitions(name, self._producer(name, data), partitions, self._code)

    @rule(name=names, commit=st.booleans(), data=st.data())
    def end(self, name: str, commit: bool, data: st.DataObject) -> None:
        self.asked += 1
        self.world.coordinator.end(name, self._producer(name, data), commit, self._code)

    @rule(name=names)
    def use_up_epochs(self, name: str) -> None:
        """As 32,000 clients before would have."""
        entry = self.world.machine.entries.get(name)
        if entry is None or entry.state is None or entry.pending is not None or entry.state.state_name == "Ongoing":
            return
        late = entry.state._replace(producer_epoch=max(entry.state.producer_epoch, 32765), state=0, partitions=())
        if late.producer_epoch != entry.state.producer_epoch:
            self.world.shard.run(lambda machine: machine.move(name, entry, late, lambda error: None))

    # --- what happens to the broker

    @rule(seconds=st.sampled_from([0.1, 5.0, 70.0, 600.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.timer.advance(seconds)

    @rule()
    def appends_wait(self) -> None:
        self.world.log.held = True

    @rule()
    def appends_go_on(self) -> None:
        self.world.log.let_go()

    @rule(code=st.sampled_from([Errors.NOT_ENOUGH_REPLICAS, Errors.KAFKA_STORAGE_ERROR]))
    def appends_fail(self, code: int) -> None:
        self.world.log.fails = KafkaError(code)

    @rule()
    def appends_work(self) -> None:
        self.world.log.fails = None

    @rule()
    def markers_wait(self) -> None:
        self.world.markers.held = True

    @rule()
    def markers_go_on(self) -> None:
        self.world.markers.let_go()

    @rule(partition=st.sampled_from(PARTITIONS), fails=st.booleans())
    def markers_fail(self, partition: tuple[str, int], fails: bool) -> None:
        self.world.markers.codes[partition] = Errors.NOT_LEADER_OR_FOLLOWER if fails else Errors.NONE

    @rule()
    def restart(self) -> None:
        old_log = self.world.log
        old_log.fails = KafkaError(Errors.NOT_LEADER_OR_FOLLOWER)  # what waited is lost, and its client told so
        old_log.let_go()
        old_log.fails = None
        self.world.restart()

    # --- what holds

    @invariant()
    def replayed_state_is_live_state(self) -> None:
        machine = type(self.world.machine)(self.world.machine._completion, self.world.machine._upkeep)
        replay(machine, self.world.log.batches)
        live = {name: one.state for name, one in self.world.machine.entries.items() if one.state is not None}
        assert {name: one.state for name, one in machine.entries.items()} == live
        assert machine.open == self.world.machine.open == {n for n, s in live.items() if s.state_name == "Ongoing"}

    @invariant()
    def records_follow_each_other(self) -> None:
        last: dict[str, TransactionState | None] = {}
        for key, state in zip(self.world.log.records, self.world.states_in_log(), strict=True):
            name = decode_key(key[0])
            assert name is not None
            before = last.get(name)
            assert (before.state_name if before else "-") in MAY_FOLLOW[state.state_name if state else "-"]
            if before and state:
                assert (state.producer_id, state.producer_epoch) >= (before.producer_id, before.producer_epoch)
                if state.state_name != "Empty":
                    assert state.producer_id == before.producer_id
                if state.state_name.startswith("Prepare"):
                    assert state.partitions == before.partitions
                if state.state_name.startswith("Complete"):
                    # A marker in each of its partitions came before (see CheckedWorld).
                    assert state.producer_epoch == before.producer_epoch
            last[name] = state

    @invariant()
    def whoever_asks_is_answered(self) -> None:
        assert self.answered <= self.asked
        if not self.world.log.held:
            assert self.answered == self.asked

    @precondition(lambda self: any(one.state for one in self.world.machine.entries.values()))
    @rule()
    def everything_comes_to_an_end(self) -> None:
        """Once nothing fails any more, and open transactions have timed out, every transaction is complete."""
        world = self.world
        world.markers.codes.clear()
        world.log.fails = None
        world.log.let_go()
        world.markers.let_go()
        world.timer.advance(80)
        for entry in world.machine.entries.values():
            assert entry.pending is None
            assert entry.unmarked is None
            assert entry.state is not None
            assert STATES[entry.state.state] in {"Empty", "CompleteCommit", "CompleteAbort"}


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
