"""The invariants of transactions hold with random requests, failing appends, slow markers and restarts."""

from random import Random

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafkapy.coordinator.shard import Producer
from kafkapy.coordinator.transaction_records import STATES, TransactionState, decode_key
from kafkapy.coordinator.transactions import transitions
from kafkapy.coordinator.transactions.transitions import IDLE, TopicPartition, flattened
from kafkapy.errors import Errors, KafkaError
from tests.coordinator.transactions.world import World, replay
from tests.harness.examples import examples

NAMES = ("a", "b")
PARTITIONS = (("t", 0), ("t", 1), ("u", 0))

# Kafka's validPreviousStates; "-" is an unknown id. Fencing changes Ongoing directly to PrepareAbort.
MAY_FOLLOW = {
    "Empty": {"-", "Empty", "CompleteCommit", "CompleteAbort"},
    "Ongoing": {"Ongoing", "Empty", "CompleteCommit", "CompleteAbort"},
    "PrepareCommit": {"Ongoing"},
    "PrepareAbort": {"Ongoing"},
    "CompleteCommit": {"PrepareCommit"},
    "CompleteAbort": {"PrepareAbort"},
    "-": {"Empty", "CompleteCommit", "CompleteAbort"},
}
LATE_EPOCH = 32765
REFUSALS = {
    Errors.CONCURRENT_TRANSACTIONS,
    Errors.PRODUCER_FENCED,
    Errors.INVALID_PRODUCER_ID_MAPPING,
    Errors.INVALID_TXN_STATE,
    Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.NOT_COORDINATOR,
}


class CheckedWorld(World):
    """A world that asserts that each marker agrees with the logged state, so no transaction both commits and aborts."""

    def on_marker(self, producer: Producer, commit: bool, partition: TopicPartition) -> None:
        decided = [state for state in self.states_in_log() if state is not None and state.producer_id == producer.id][
            -1
        ]
        assert decided.state_name == ("PrepareCommit" if commit else "PrepareAbort")
        assert decided.producer_epoch == producer.epoch
        assert partition in flattened(decided.partitions)


class Transactions(RuleBasedStateMachine):
    """Random requests of clients that keep the producers from InitProducerId responses, and mix them up."""

    def __init__(self) -> None:
        super().__init__()
        self.world = CheckedWorld()
        self.world.settings = self.world.settings._replace(expiration_ms=500_000, expire_interval_ms=100_000)
        self.world.restart()
        self.given: dict[str, list[Producer]] = {name: [] for name in NAMES}
        self.asked = self.answered = 0
        for name in NAMES:
            self.begin(name)

    def begin(self, name: str) -> None:
        self.given[name].append(self.world.producer(name))

    # --- requests of clients

    @rule(seed=st.integers(0, 1 << 32), count=st.integers(3, 12))
    def requests(self, seed: int, count: int) -> None:
        """Run a few requests, drawn by weight, since hypothesis alone would seldom reach a commit."""
        random = Random(seed)
        for _ in range(count):
            name = random.choice(NAMES)
            (ask,) = random.choices(
                [self.init, self.init_with_epoch, self.add, self.commit, self.abort, self.use_up_epochs],
                [2, 2, 10, 5, 3, 0.4],
            )
            ask(name, random)

    def _producer(self, name: str, random: Random) -> Producer:
        """Draw a producer, most often the latest one."""
        known = [Producer(1, 0), *self.given[name]]
        return known[-1] if random.random() < 0.85 else random.choice(known[-3:])

    def _code(self, code: int) -> None:
        self.answered += 1
        assert code in REFUSALS or code == Errors.NONE

    def init(self, name: str, random: Random, expected: Producer | None = None) -> None:
        def answer(code: int, producer: Producer) -> None:
            self._code(code)
            if code == Errors.NONE:
                if expected is not None and producer == self.given[name][-1]:
                    return  # the request repeats one that was answered
                assert producer not in self.given[name], "an epoch went back"
                self.given[name].append(producer)

        self.asked += 1
        self.world.coordinator.init_producer_id(
            name, random.choice([1000, 60_000]), *(expected or Producer(-1, -1)), answer
        )

    def init_with_epoch(self, name: str, random: Random) -> None:
        self.init(name, random, self._producer(name, random))

    def add(self, name: str, random: Random) -> None:
        partitions = random.sample(PARTITIONS, random.randint(1, 3))
        self.asked += 1
        self.world.coordinator.add_partitions(name, *self._producer(name, random), partitions, self._code)

    def commit(self, name: str, random: Random) -> None:
        self.asked += 1
        self.world.coordinator.end(name, *self._producer(name, random), True, self._code)

    def abort(self, name: str, random: Random) -> None:
        self.asked += 1
        self.world.coordinator.end(name, *self._producer(name, random), False, self._code)

    def use_up_epochs(self, name: str, random: Random) -> None:
        """Use up the epochs of an id, as 32,000 earlier clients would do."""
        entry = self.world.machine.entries.get(name)
        if entry is None or entry.state is None or entry.pending is not None or entry.state.state not in IDLE:
            return
        if entry.state.producer_epoch >= LATE_EPOCH:
            return
        late = transitions.created(entry.state.producer_id, 60_000, self.world.clock.time_ms())
        late = late._replace(producer_epoch=LATE_EPOCH)

        def bumped(error: KafkaError | None) -> None:
            if error is None:
                entry.previous = None
                self.given[name].append(transitions.producer_of(late))

        self.world.shard.run(lambda machine: machine.move(name, entry, late, bumped))

    # --- failures and restarts of the broker

    @rule(seconds=st.sampled_from([0.1, 0.1, 1.0, 5.0, 5.0, 70.0, 600.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.timer.advance(seconds)

    @rule(
        weather=st.sampled_from(["good"] * 3 + ["appends wait", "appends fail", "markers wait", "markers fail"]),
        code=st.sampled_from([Errors.NOT_ENOUGH_REPLICAS, Errors.KAFKA_STORAGE_ERROR]),
        partition=st.sampled_from(PARTITIONS),
    )
    def weather(self, weather: str, code: int, partition: TopicPartition) -> None:
        log, markers = self.world.log, self.world.markers
        log.fails = KafkaError(code) if weather == "appends fail" else None
        log.release()
        markers.codes = {partition: Errors.NOT_LEADER_OR_FOLLOWER} if weather == "markers fail" else {}
        markers.release()
        log.held = weather == "appends wait"
        markers.held = weather == "markers wait"

    @rule()
    def restart(self) -> None:
        old_log = self.world.log
        old_log.fails = KafkaError(Errors.NOT_LEADER_OR_FOLLOWER)  # the result of appends that still wait
        old_log.release()
        old_log.fails = None
        self.world.restart()

    # --- invariants

    @invariant()
    def replayed_state_is_live_state(self) -> None:
        machine = type(self.world.machine)(self.world.machine._completion, self.world.machine._maintenance)
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
                    # Each of its partitions got a marker before (see CheckedWorld).
                    assert state.producer_epoch == before.producer_epoch
            last[name] = state

    @invariant()
    def every_request_is_answered(self) -> None:
        assert self.answered <= self.asked
        if not self.world.log.held:
            assert self.answered == self.asked

    @precondition(lambda self: any(one.state for one in self.world.machine.entries.values()))
    @rule()
    def everything_comes_to_an_end(self) -> None:
        """Stop all failures, let open transactions time out, and assert that every transaction is complete."""
        world = self.world
        world.markers.codes.clear()
        world.log.fails = None
        world.log.release()
        world.release_markers()
        world.timer.advance(80)
        for entry in world.machine.entries.values():
            assert entry.pending is None
            assert entry.unmarked is None
            assert entry.state is not None
            assert STATES[entry.state.state] in {"Empty", "CompleteCommit", "CompleteAbort"}


TestTransactions = Transactions.TestCase
# Without shrinking, which takes minutes here: a failure has few enough steps to read.
TestTransactions.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None, phases=set(Phase) - {Phase.shrink, Phase.explain}
)
