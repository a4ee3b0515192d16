"""A broker applies the roles that a controller sends. The tests are the controller."""

import errno
import shutil
import threading

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.config import LogConfig
from kafkapy.log.manager import LogManager
from kafkapy.log.storage.files import Files
from kafkapy.metadata.cache import LiveBroker, MetadataCache
from kafkapy.metadata.roles import ANY_EPOCH, NO_LEADER, TOPIC_DELETED, PartitionRole, StopPartition
from kafkapy.record.batch import build
from kafkapy.replica import roles as roles_module
from kafkapy.replica.manager import ReplicaManager
from kafkapy.replica.roles import Roles
from kafkapy.runtime.clock import SYSTEM_CLOCK
from kafkapy.runtime.scheduler import Scheduler
from kafkapy.runtime.timer import Timer
from tests.harness.appends import AtOnce, append_to
from tests.harness.waiting import eventually

TOPIC_ID = bytes(range(16))
ME = 0


def batch():
    return memoryview(bytearray(build([(1_600_000_000_000, None, b"v", [])])))


def role(epoch=0, leader=ME, isr=(ME,), replicas=(ME, 1), partition=0, is_new=False):
    return PartitionRole("t", partition, TOPIC_ID, leader, epoch, 0, isr, replicas, is_new)


class Disk(Files):
    """A disk that has no space for files whose path contains one of `full`."""

    def __init__(self):
        self.full = ()

    def _check(self, path):
        if any(part in path for part in self.full):
            raise OSError(errno.ENOSPC, "No space left on device")

    def make_dir(self, path):
        self._check(path)
        super().make_dir(path)

    def replace(self, path, data):
        self._check(path)
        super().replace(path, data)


class Broker:
    """Log directory, replicas and roles of broker 0. `led` and `lost` get the partitions passed to the callbacks."""

    def __init__(self, directory):
        self.scheduler = Scheduler()
        self.disk = Disk()
        self.logs = LogManager(
            [directory], LogConfig({}), clock=SYSTEM_CLOCK, scheduler=self.scheduler, files=self.disk
        )
        self.replicas = ReplicaManager(
            self.logs, broker_id=ME, timer=Timer(SYSTEM_CLOCK), append_pool=AtOnce(), stall_threshold=1.0
        )
        self.led, self.lost = [], []
        self.replicas.on_became_leader = self.led.append
        self.replicas.on_lost_leadership = self.lost.append
        self.cache = MetadataCache()
        self.due = []  # functions to call after a second
        self.asked = []  # an entry for each request for its roles
        self.roles = Roles(
            self.replicas,
            lambda topic: LogConfig({}),
            cache=self.cache,
            later=lambda delay_s, work: self.due.append(work),
            ask_for_roles=lambda: self.asked.append(True),
        )

    def join(self, *others):
        self.cache.set_brokers(ME, [LiveBroker(one, {}) for one in (ME, *others)])

    def second(self):
        """Let a second pass: call the functions in `due`."""
        due, self.due = self.due, []
        for work in due:
            work()

    def apply(self, *changes, controller_epoch=1):
        """Apply the change. Return the error codes by partition."""
        failures = self.roles.apply(controller_epoch, changes)
        assert all(topic == "t" for topic, _ in failures)
        return {partition: error.code for (_, partition), error in failures.items()}

    def code(self, partition=0):
        """Return NONE if the broker leads the partition, else the code of the error that `get` raises."""
        try:
            self.replicas.get("t", partition)
        except KafkaError as error:
            return error.code
        return Errors.NONE

    def close(self):
        self.logs.close()
        self.scheduler.stop()


@pytest.fixture
def directory(tmp_path):
    return tmp_path


@pytest.fixture
def broker(directory):
    broker = Broker(directory)
    broker.logs.load()
    yield broker
    broker.close()


def test_a_broker_becomes_leader_and_follower_and_drops_the_partition(broker, directory):
    assert broker.apply(role(is_new=True)) == {}
    partition = broker.replicas.get("t", 0)
    append_to(partition, [batch()])
    assert (partition.isr, partition.replicas) == ((ME,), (ME, 1))
    assert broker.apply(role(epoch=1, leader=1)) == {}
    assert broker.code() == Errors.NOT_LEADER_OR_FOLLOWER
    assert broker.lost == [partition]
    assert broker.apply(role(epoch=2, isr=[ME, 1])) == {}
    again = broker.replicas.get("t", 0)
    assert again.leader_epoch == 2
    assert again.log.log_end_offset == 1
    assert broker.apply(StopPartition("t", 0, TOPIC_DELETED, delete=True)) == {}
    assert broker.code() == Errors.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.lost == [partition, again]
    assert not (directory / "t-0").exists()


@pytest.mark.parametrize("leader", [ME, 1])
def test_a_stop_without_deletion_keeps_the_log_and_the_role(broker, directory, leader):
    broker.apply(role(is_new=True), role(epoch=1, leader=leader))
    before = broker.code()
    assert broker.apply(StopPartition("t", 0, ANY_EPOCH, delete=False)) == {}
    assert broker.code() == before
    assert broker.replicas.leader_epoch("t", 0) == 1
    assert (directory / "t-0").exists()


def test_a_deposed_controller_is_not_obeyed(broker):
    assert broker.apply(role(is_new=True), controller_epoch=5) == {}
    late = [role(epoch=1, leader=1), role(partition=1, is_new=True)]
    assert broker.apply(*late, controller_epoch=4) == dict.fromkeys([0, 1], Errors.STALE_CONTROLLER_EPOCH)
    assert broker.code() == Errors.NONE
    assert broker.code(1) == Errors.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.apply(role(epoch=1), controller_epoch=5) == {}


def test_leaders_do_not_wait_for_each_others_disk_writes(broker):
    together = threading.Barrier(2)
    write = broker.disk.replace

    def replace(path, data):
        if path.endswith("leader-epoch-checkpoint"):
            together.wait(30)  # raises BrokenBarrierError if no other thread writes at the same time
        write(path, data)

    broker.disk.replace = replace
    assert broker.apply(role(partition=0, is_new=True), role(partition=1, is_new=True)) == {}
    assert [broker.code(partition) for partition in (0, 1)] == [Errors.NONE, Errors.NONE]


def test_changes_of_one_partition_are_applied_in_their_order(broker):
    roles = [role(epoch, leader=ME if epoch % 2 else 1) for epoch in range(20)]
    assert broker.apply(*roles) == {}
    assert broker.replicas.leader_epoch("t", 0) == 19


@pytest.mark.parametrize("before", [ME, 1])
@pytest.mark.parametrize("leader", [ME, 1, NO_LEADER])
@pytest.mark.parametrize("epoch", [2, 3])
def test_a_leader_epoch_that_is_not_later_changes_nothing(broker, before, leader, epoch):
    broker.apply(role(is_new=True), role(epoch=3, leader=before))
    code = broker.code()
    assert broker.apply(role(epoch=epoch, leader=leader)) == {0: Errors.STALE_CONTROLLER_EPOCH}
    assert (broker.code(), broker.replicas.leader_epoch("t", 0)) == (code, 3)


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(2, Errors.FENCED_LEADER_EPOCH), (3, None), (4, None), (ANY_EPOCH, None), (TOPIC_DELETED, None)],
)
@pytest.mark.parametrize("leader", [ME, 1])
def test_a_deletion_of_an_earlier_leader_epoch_is_refused(broker, directory, leader, epoch, code):
    broker.apply(role(is_new=True), role(epoch=3, leader=leader))
    before = broker.code()
    assert broker.apply(StopPartition("t", 0, epoch, delete=True)) == ({0: code} if code is not None else {})
    assert broker.code() == (Errors.UNKNOWN_TOPIC_OR_PARTITION if code is None else before)
    assert (directory / "t-0").exists() == (code is not None)


def test_a_deletion_removes_a_log_of_which_the_broker_has_no_role(broker, directory):
    broker.logs.create("t", 0, TOPIC_ID, LogConfig({}))
    assert broker.apply(StopPartition("t", 0, 3, delete=True)) == {}
    assert not (directory / "t-0").exists()


@pytest.mark.parametrize("leader", [ME, 1])
@pytest.mark.parametrize("epoch", [0, 1])
def test_another_topic_id_fails_one_partition_and_not_its_neighbour(broker, leader, epoch):
    broker.apply(role(is_new=True))
    other = role(epoch=epoch, leader=leader)._replace(topic_id=bytes(15) + b"\1")
    assert broker.apply(other, role(partition=1, is_new=True)) == {0: Errors.INCONSISTENT_TOPIC_ID}
    assert broker.code() == broker.code(1) == Errors.NONE


@pytest.mark.parametrize(
    ("epoch", "code"), [(0, Errors.STALE_CONTROLLER_EPOCH), (1, Errors.UNKNOWN_TOPIC_OR_PARTITION)]
)
def test_a_role_for_other_replicas_changes_nothing(broker, epoch, code):
    broker.apply(role(is_new=True))
    assert broker.apply(role(epoch=epoch, leader=1, replicas=[1, 2])) == {0: code}
    assert broker.replicas.get("t", 0).leader_epoch == 0


@pytest.mark.parametrize("change", [role(leader=1), StopPartition("t", 0, 0, delete=True)])
def test_an_offline_directory_comes_before_a_stale_leader_epoch(broker, change):
    broker.apply(role(is_new=True), role(epoch=1))
    broker.logs.get("t", 0).env.failed("writing", OSError("the disk is broken"))
    assert broker.apply(change) == {0: Errors.KAFKA_STORAGE_ERROR}


def refusing(code):
    def config_of(topic):
        raise KafkaError(code, "these settings are invalid")

    return config_of


def test_a_role_that_is_refused_for_the_settings_is_taken_when_they_are_valid(broker):
    broker.logs.create("t", 0, TOPIC_ID, LogConfig({}))
    broker.replicas.expect("t", [0])
    config_of = broker.roles._config_of
    for code in (Errors.KAFKA_STORAGE_ERROR, Errors.INVALID_CONFIG):
        broker.roles._config_of = refusing(code)
        assert broker.apply(role(epoch=1)) == {0: code}
        assert broker.code() == code
    broker.roles.settings_changed("t")
    assert broker.code() == Errors.INVALID_CONFIG
    broker.roles._config_of = config_of
    broker.roles.settings_changed("other")
    assert broker.code() == Errors.INVALID_CONFIG
    broker.roles.settings_changed("t")
    broker.roles.settings_changed("t")
    assert [partition.leader_epoch for partition in broker.led] == [1]


def test_a_role_is_taken_if_the_settings_become_valid_just_after_they_were_read(broker):
    broker.logs.create("t", 0, TOPIC_ID, LogConfig({}))
    broker.replicas.expect("t", [0])
    valid = broker.roles._config_of

    def read_too_early(topic):
        broker.roles._config_of = valid
        broker.roles.settings_changed("t")
        raise KafkaError(Errors.INVALID_CONFIG, "these settings are invalid")

    broker.roles._config_of = read_too_early
    assert broker.apply(role(epoch=1)) == {}
    assert broker.code() == Errors.NONE
    assert [partition.leader_epoch for partition in broker.led] == [1]


def test_a_follower_that_cannot_become_leader_still_refuses_earlier_roles(broker):
    broker.apply(role(is_new=True), role(epoch=3, leader=1))
    broker.roles._config_of = refusing(Errors.INVALID_CONFIG)
    assert broker.apply(role(epoch=4)) == {0: Errors.INVALID_CONFIG}
    assert broker.code() == Errors.INVALID_CONFIG
    assert broker.apply(role(epoch=3, leader=2)) == {0: Errors.STALE_CONTROLLER_EPOCH}
    assert broker.apply(role(epoch=4, leader=1)) == {}
    assert broker.code() == Errors.NOT_LEADER_OR_FOLLOWER


def test_a_followed_log_without_topic_id_gets_that_of_the_role(broker):
    log = broker.logs.create("t", 0, None, LogConfig({}))
    assert log.topic_id is None
    assert broker.apply(role(leader=1)) == {}
    assert log.topic_id == TOPIC_ID


def test_a_partition_without_a_leader_is_refused_as_one_that_another_broker_leads(broker):
    broker.replicas.expect("t", [0])
    assert broker.apply(role(leader=NO_LEADER, epoch=-1, isr=[2])) == {}
    with pytest.raises(KafkaError, match=r"t-0 has no leader: its ISR is \[2\]") as refusal:
        broker.replicas.get("t", 0)
    assert refusal.value.code == Errors.NOT_LEADER_OR_FOLLOWER


def test_an_append_of_an_earlier_leader_epoch_is_refused_by_the_log(broker):
    """The append was waiting when the partition got another leader, or the same leader in a new epoch."""
    broker.apply(role(is_new=True))
    old = broker.replicas.get("t", 0)
    broker.apply(role(epoch=1, leader=1))
    (verdict,) = old.log.append([batch()], 0)
    assert verdict.code == Errors.NOT_LEADER_OR_FOLLOWER
    broker.apply(role(epoch=2))
    (verdict,) = old.log.append([batch()], 0)
    assert verdict.code == Errors.NOT_LEADER_OR_FOLLOWER
    assert [entry.epoch for entry in old.log.leader_epochs.entries] == [2]
    new = broker.replicas.get("t", 0)
    (verdict,) = append_to(new, [batch()])
    assert verdict.base_offset == 0


def test_an_append_waiting_for_replicas_fails_when_another_broker_becomes_leader(broker):
    broker.apply(role(isr=[ME, 1], is_new=True))
    partition = broker.replicas.get("t", 0)
    append_to(partition, [batch()])
    outcome = []
    partition.when_replicated(1, 60.0, outcome.append)
    broker.apply(role(epoch=1, leader=1))
    assert [error.code for error in outcome] == [Errors.NOT_LEADER_OR_FOLLOWER]


class Watched(dict):
    """A dict that calls `look` after each change."""

    def __init__(self, content, look):
        super().__init__(content)
        self.look = look

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        self.look()

    def pop(self, *args):
        value = super().pop(*args)
        self.look()
        return value


def test_a_partition_is_found_in_its_old_or_its_new_role_at_any_time(broker):
    broker.apply(role(is_new=True))
    replicas, found = broker.replicas, []

    def look():
        found.append((broker.code(), replicas.readable("t", 0).leader_epoch))

    for hosted in (replicas._topics, replicas._followed, replicas._absent):
        hosted["t"] = Watched(hosted.get("t", {}), look)
    broker.apply(role(epoch=1, leader=1))
    broker.apply(role(epoch=2, leader=1))
    broker.apply(role(epoch=3))
    codes = [code for code, _ in found]
    assert set(codes) == {Errors.NONE, Errors.NOT_LEADER_OR_FOLLOWER}
    assert {epoch for _, epoch in found} == {0, 1, 2, 3}


def test_a_reader_finds_a_follower_that_is_made_after_its_first_look(broker, monkeypatch):
    broker.apply(role(is_new=True))
    find = broker.replicas._find

    def find_late(topic, index):
        monkeypatch.setattr(broker.replicas, "_find", find)
        assert broker.apply(role(epoch=1, leader=1)) == {}
        return find(topic, index)

    monkeypatch.setattr(broker.replicas, "_find", find_late)
    assert broker.replicas.readable("t", 0).leader_epoch == 1


@pytest.mark.parametrize("leader", [ME, 1])
def test_a_role_that_is_applied_during_the_deletion_ends_with_the_log(broker, directory, monkeypatch, leader):
    broker.apply(role(is_new=True))
    delete, roles, unfollowed = broker.logs.delete, [], []

    def delete_late(topic, index):
        assert broker.apply(role(epoch=1, leader=leader)) == {}
        roles.append(broker.replicas.readable(topic, index))
        delete(topic, index)

    monkeypatch.setattr(broker.logs, "delete", delete_late)
    broker.replicas.on_unfollowed = unfollowed.append
    assert broker.apply(StopPartition("t", 0, TOPIC_DELETED, delete=True)) == {}
    assert (broker.code(), broker.replicas.followed("t", 0)) == (Errors.UNKNOWN_TOPIC_OR_PARTITION, None)
    assert [one.gone.code for one in roles] == [Errors.UNKNOWN_TOPIC_OR_PARTITION]
    assert (broker.lost[1:], unfollowed) == ((roles, []) if leader == ME else ([], roles))
    assert not (directory / "t-0").exists()


@pytest.mark.parametrize("leader", [ME, 1])
def test_a_role_with_a_new_log_stays_when_the_deletion_of_the_old_log_ends(broker, directory, monkeypatch, leader):
    broker.apply(role(is_new=True))
    delete = broker.logs.delete

    def delete_early(topic, index):
        delete(topic, index)
        assert broker.apply(role(epoch=1, leader=leader, is_new=True)) == {}

    monkeypatch.setattr(broker.logs, "delete", delete_early)
    assert broker.apply(StopPartition("t", 0, TOPIC_DELETED, delete=True)) == {}
    assert broker.replicas.readable("t", 0).gone is None
    assert broker.replicas.leader_epoch("t", 0) == 1
    assert (directory / "t-0").exists()


def test_changes_for_a_log_that_is_loading_wait_for_it(directory):
    first = Broker(directory)
    first.logs.load()
    first.apply(role(is_new=True))
    first.close()
    broker = Broker(directory)
    broker.replicas.expect("t", [0])
    broker.logs.loading.begin(on_loaded=broker.roles.loaded)
    assert broker.apply(role(epoch=1)) == {}
    assert broker.apply(role(epoch=2)) == {}
    assert broker.apply(role(epoch=1, leader=1)) == {0: Errors.STALE_CONTROLLER_EPOCH}
    assert broker.apply(StopPartition("t", 0, 1, delete=True)) == {0: Errors.FENCED_LEADER_EPOCH}
    assert broker.apply(StopPartition("t", 0, 2, delete=False)) == {}
    assert broker.led == []
    broker.logs.loading.start()
    assert broker.logs.loading.wait(30)
    assert [partition.leader_epoch for partition in broker.led] == [2]
    broker.close()


def test_the_controller_is_asked_once_for_the_roles_if_logs_turn_out_to_be_unservable(directory, monkeypatch):
    """The controller took their replicas for online, since roles for loading logs are answered with success."""
    first = Broker(directory)
    first.logs.load()
    first.apply(*(role(partition=index, is_new=True) for index in range(3)))
    first.close()
    broker = Broker(directory)
    broker.join(1)
    loading, goes_on = broker.logs.loading, threading.Event()
    open_log = loading.open

    def open_some(key, *others):
        if key != ("t", 1):
            raise ValueError("damaged")
        assert goes_on.wait(30)
        return open_log(key, *others)

    monkeypatch.setattr(loading, "open", open_some)
    broker.replicas.expect("t", range(3))
    loading.begin(on_loaded=broker.roles.loaded)
    assert broker.apply(*(role(epoch=1, partition=index) for index in range(3))) == {}
    for index in (0, 2):
        loading.hasten(("t", index))
    loading.start()
    eventually(lambda: broker.code(2) == Errors.KAFKA_STORAGE_ERROR)
    eventually(lambda: broker.due)
    broker.second()
    assert (broker.asked, len(broker.due)) == ([], 1)
    goes_on.set()
    assert loading.wait(30)
    broker.second()
    assert (broker.asked, broker.due) == ([True], [])
    repeated = broker.apply(*(role(epoch=1, partition=index) for index in range(3)))
    assert repeated == {
        0: Errors.KAFKA_STORAGE_ERROR,
        1: Errors.STALE_CONTROLLER_EPOCH,
        2: Errors.KAFKA_STORAGE_ERROR,
    }
    assert broker.due == []
    broker.close()


def test_dropping_a_partition_cancels_the_role_that_waits_for_its_log(directory):
    first = Broker(directory)
    first.logs.load()
    first.apply(role(is_new=True))
    first.close()
    broker = Broker(directory)
    broker.replicas.expect("t", [0])
    broker.logs.loading.begin(on_loaded=broker.roles.loaded)
    broker.apply(role(epoch=1))
    assert broker.apply(StopPartition("t", 0, TOPIC_DELETED, delete=True)) == {}
    broker.logs.loading.start()
    assert broker.logs.loading.wait(30)
    assert broker.led == []
    assert broker.code() == Errors.UNKNOWN_TOPIC_OR_PARTITION
    broker.close()


@pytest.mark.parametrize("leader", [ME, 1])
def test_a_role_that_is_overtaken_by_a_later_one_is_not_taken(broker, leader):
    """The thread that takes the role waits, here for settings, while another thread applies the next role."""
    broker.replicas.expect("t", [0])
    make_leader = broker.replicas.make_leader

    def overtaken(first, config):
        broker.replicas.make_leader = make_leader
        assert broker.apply(role(epoch=2, leader=leader)) == {}
        return make_leader(first, config)

    broker.logs.create("t", 0, TOPIC_ID, LogConfig({}))
    broker.replicas.make_leader = overtaken
    assert broker.apply(role(epoch=1)) == {0: Errors.STALE_CONTROLLER_EPOCH}
    if leader == ME:
        assert broker.replicas.get("t", 0).leader_epoch == 2
    else:
        assert broker.code() == Errors.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("leader", [ME, 1])
def test_a_follower_role_that_is_overtaken_by_a_later_one_is_not_taken(broker, leader):
    broker.apply(role(is_new=True))
    log = broker.logs.get("t", 0)
    fence = log.fence

    def overtaken(epoch):
        log.fence = fence
        assert broker.apply(role(epoch=2, leader=leader)) == {}
        fence(epoch)

    log.fence = overtaken
    assert broker.apply(role(epoch=1, leader=1)) == {0: Errors.STALE_CONTROLLER_EPOCH}
    assert broker.replicas.leader_epoch("t", 0) == 2
    assert (broker.code() == Errors.NONE) == (leader == ME)


def said(caplog):
    return [one.levelname for one in caplog.records if one.name == "kafkapy.replica.roles" and one.levelno > 20]


@pytest.mark.parametrize("leader", [ME, 1])
def test_a_role_without_space_for_its_log_is_taken_when_there_is_space(broker, caplog, leader):
    """After an error, the controller would take the replica for offline, and send no more roles for it."""
    broker.join(1)
    broker.disk.full = ["/t-"]
    roles = [role(leader=leader, isr=(leader,), partition=index, is_new=True) for index in range(3)]
    assert broker.apply(*roles) == {}
    for _ in range(3):
        broker.second()
        assert len(broker.due) == 1
        assert [broker.replicas.leader_epoch("t", index) for index in range(3)] == [-1, -1, -1]
    assert said(caplog) == ["ERROR"]
    broker.disk.full = ()
    broker.second()
    assert [broker.replicas.leader_epoch("t", index) for index in range(3)] == [0, 0, 0]
    assert [broker.replicas.followed("t", index) is None for index in range(3)] == [leader == ME] * 3
    assert said(caplog) == ["ERROR", "WARNING"]
    assert (broker.due, broker.asked) == ([], [])


@pytest.mark.parametrize("full", ["/t-", "leader-epoch-checkpoint"])
def test_a_leader_without_space_gives_way_to_another_member_of_the_isr(broker, full):
    """The controller takes the replica for offline and elects another leader, but may send no more roles for it."""
    broker.join(1)
    if full != "/t-":
        broker.apply(role(is_new=True), role(is_new=True, partition=1))
    broker.disk.full = [full]
    roles = [role(epoch=1, isr=(ME, 1), is_new=full == "/t-"), role(epoch=1, isr=(ME, 2), partition=1)]
    assert broker.apply(*roles) == {0: Errors.KAFKA_STORAGE_ERROR}
    broker.second()
    assert broker.asked == []
    broker.disk.full = ()
    broker.second()
    assert broker.code() == Errors.NOT_LEADER_OR_FOLLOWER
    assert broker.replicas.leader_epoch("t", 0) == 1
    assert broker.code(partition=1) == Errors.NONE  # broker 2 is dead, so no other broker can lead
    assert broker.asked == [True]
    assert broker.apply(role(epoch=2, leader=1, isr=(1,))) == {}
    assert broker.replicas.followed("t", 0).leader == 1
    broker.disk.full = [full]
    broker.apply(role(epoch=1, isr=(ME,), partition=2, is_new=True))
    broker.disk.full = ()
    broker.second()
    assert broker.asked == [True]


def test_a_leader_epoch_without_space_for_it_begins_when_there_is_space(broker):
    broker.join(1)
    broker.apply(role(is_new=True), role(epoch=1, leader=1))
    broker.disk.full = ["leader-epoch-checkpoint"]
    assert broker.apply(role(epoch=2)) == {}
    assert broker.code() == Errors.KAFKA_STORAGE_ERROR
    assert broker.apply(role(epoch=2)) == {}  # the controller repeats the role
    broker.disk.full = ()
    broker.second()
    assert broker.replicas.get("t", 0).leader_epoch == 2
    assert [entry.epoch for entry in broker.replicas.get("t", 0).log.leader_epochs.entries] == [2]
    assert broker.due == []


def test_a_broker_alone_says_that_there_is_no_space_and_takes_the_role_later(broker):
    broker.join()
    broker.disk.full = ["/t-0"]
    assert broker.apply(role(is_new=True)) == {0: Errors.KAFKA_STORAGE_ERROR}
    broker.second()
    assert len(broker.due) == 1
    broker.disk.full = ()
    broker.second()
    assert broker.replicas.get("t", 0).leader_epoch == 0


def test_a_role_that_waits_for_space_gives_way_to_a_later_one_and_to_no_earlier_one(broker, caplog):
    broker.join(1)
    broker.disk.full = ["/t-0"]
    assert broker.apply(role(epoch=3, is_new=True)) == {}
    assert broker.apply(role(epoch=2, leader=1)) == {0: Errors.STALE_CONTROLLER_EPOCH}
    assert broker.apply(StopPartition("t", 0, 2, delete=True)) == {0: Errors.FENCED_LEADER_EPOCH}
    broker.disk.full = ()
    assert broker.apply(role(epoch=4, leader=1)) == {}
    broker.second()
    assert broker.led == []
    assert broker.replicas.followed("t", 0).leader_epoch == 4
    assert (said(caplog), broker.due) == (["ERROR", "WARNING"], [])


def test_a_role_that_waits_for_space_ends_with_its_partition(broker, directory):
    broker.join(1)
    broker.disk.full = ["/t-0"]
    assert broker.apply(role(is_new=True)) == {}
    assert broker.apply(StopPartition("t", 0, TOPIC_DELETED, delete=True)) == {}
    broker.disk.full = ()
    broker.second()
    assert (broker.led, broker.due) == ([], [])
    assert not (directory / "t-0").exists()


def test_roles_that_wait_for_space_do_not_keep_others_from_being_tried(broker, monkeypatch):
    """The log of another role may be in a log directory that has space again."""
    monkeypatch.setattr(roles_module, "MOST_IN_VAIN", 1)
    broker.join(1)
    broker.disk.full = ["/t-"]
    broker.apply(*(role(partition=index, is_new=True) for index in range(3)))
    broker.disk.full = ["/t-0", "/t-1"]
    for _ in range(3):
        broker.second()
    assert [partition.log.partition for partition in broker.led] == [2]


def test_a_role_for_a_log_that_was_loading_waits_for_space_too(directory):
    first = Broker(directory)
    first.logs.load()
    first.apply(role(is_new=True))
    first.close()
    broker = Broker(directory)
    broker.join(1)
    broker.replicas.expect("t", [0])
    broker.logs.loading.begin(on_loaded=broker.roles.loaded)
    assert broker.apply(role(epoch=1)) == {}
    broker.disk.full = ["leader-epoch-checkpoint"]
    broker.logs.loading.start()
    assert broker.logs.loading.wait(30)
    assert broker.code() == Errors.KAFKA_STORAGE_ERROR
    broker.disk.full = ()
    broker.second()
    assert broker.code() == Errors.NONE
    broker.close()


def test_a_topic_id_without_space_for_it_is_written_when_there_is_space(broker):
    broker.join(1)
    broker.apply(role(leader=1, is_new=True)._replace(topic_id=bytes(16)))
    log = broker.logs.get("t", 0)
    broker.disk.full = ["/t-0"]
    assert broker.apply(role(leader=1)) == {}
    assert log.topic_id is None
    broker.disk.full = ()
    broker.second()
    assert (log.topic_id, broker.due) == (TOPIC_ID, [])


def test_an_empty_disk_at_the_last_member_of_the_isr_loses_the_records(directory):
    """KAFKA-14139: as in Kafka 3.9, the broker cannot tell a new disk from one that never had the log. It leads an
    empty log, so even a clean election loses acknowledged records, and followers must truncate their logs to 0."""
    first = Broker(directory)
    first.logs.load()
    first.apply(role(is_new=True))
    append_to(first.replicas.get("t", 0), [batch()])
    first.close()
    shutil.rmtree(directory)
    directory.mkdir()
    broker = Broker(directory)
    broker.join(1)
    broker.logs.load()
    assert broker.apply(role(epoch=1, isr=(ME,))) == {}
    partition = broker.replicas.get("t", 0)
    assert (partition.log.log_end_offset, partition.isr) == (0, (ME,))
    (verdict,) = append_to(partition, [batch()])
    assert verdict.base_offset == 0
    assert partition.log.end_offset_for_epoch(0) == (0, 0)  # the response to a follower with the record
    broker.close()
