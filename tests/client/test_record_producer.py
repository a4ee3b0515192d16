"""The producer's requests, and its reaction to each kind of response."""

import pytest

from kafkapy.client.errors import ClientError, ProduceFailed
from kafkapy.client.producing.partitioner import partition_of_key
from kafkapy.client.producing.record_producer import RecordProducer
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol import apis
from kafkapy.record.batch import records_of
from tests.harness.batches import iter_batches


class Store:
    """The batches that a fake broker has stored. `errors` has its first responses, one for each request."""

    def __init__(self, broker, errors=()):
        self.broker = broker
        self.errors = list(errors)
        self.batches = []  # (topic, partition, bytes) of each batch, also of refused ones
        self.stored = []
        broker.answers[apis.PRODUCE.key] = self.answer

    def answer(self, request):
        error = self.errors.pop(0) if self.errors else Errors.NONE
        if not isinstance(error, int):
            self._take(request, stored=True)
            return error
        shape = apis.PRODUCE.Response.Responses
        taken = self._take(request, stored=error == Errors.NONE)
        return apis.PRODUCE.Response(
            responses=[
                shape(
                    name=topic,
                    partition_responses=[
                        shape.PartitionResponses(
                            index=index, error_code=error, base_offset=len(self.stored), error_message=None
                        )
                    ],
                )
                for topic, index, _ in taken
            ]
        )

    def _take(self, request, *, stored):
        taken = [
            (topic.name, part.index, bytes(part.records))
            for topic in request.topic_data
            for part in topic.partition_data
        ]
        self.batches += taken
        if stored:
            self.stored += taken
        return taken

    def values(self):
        return [
            record.value
            for _, _, data in self.stored
            for header in iter_batches(data)
            for record in records_of(data, header)
        ]

    def headers(self):
        return [next(iter_batches(data)) for _, _, data in self.batches]


def test_a_record_arrives_unchanged(fake_broker):
    fake_broker.topics = {"t": [1]}
    store = Store(fake_broker)
    with RecordProducer(fake_broker.address) as producer:
        producer.send("t", b"v", b"k", headers=[("h", b"x"), ("n", None)], timestamp=1600000000000)
        producer.send("t", None, None, timestamp=1600000000001)
    (_, _, data) = store.stored[0]
    first, second = records_of(data, next(iter_batches(data)))
    assert first[:5] == (0, 1600000000000, b"k", b"v", (("h", b"x"), ("n", None)))
    assert second[:5] == (1, 1600000000001, None, None, ())


def test_records_of_a_key_go_to_kafkas_partition(fake_broker):
    fake_broker.topics = {"t": [1, 1, 1]}
    store = Store(fake_broker)
    keys = [str(number).encode() for number in range(30)]
    with RecordProducer(fake_broker.address) as producer:
        for key in keys:
            producer.send("t", key, key)
    for _, index, data in store.stored:
        assert {partition_of_key(r.key, 3) for h in iter_batches(data) for r in records_of(data, h)} == {index}
    assert sorted(store.values()) == sorted(keys)


def test_a_delivery_has_the_partition_and_the_base_offset(fake_broker):
    fake_broker.topics = {"t": [1]}
    Store(fake_broker)
    with RecordProducer(fake_broker.address) as producer:
        delivery = producer.send("t", b"v")
        assert not delivery.done
        producer.flush()
        assert (delivery.done, delivery.topic, delivery.partition, delivery.base_offset) == (True, "t", 0, 1)
        assert producer.acknowledged == 1


@pytest.mark.parametrize("codec", range(5))
def test_every_codec_is_sent(fake_broker, codec):
    fake_broker.topics = {"t": [1]}
    store = Store(fake_broker)
    with RecordProducer(fake_broker.address, codec=codec) as producer:
        producer.send("t", b"v" * 1000)
    assert store.headers()[0].codec == codec
    assert store.values() == [b"v" * 1000]


def test_sequences_follow_each_other_within_a_partition(fake_broker):
    fake_broker.topics = {"t": [1]}
    store = Store(fake_broker)
    with RecordProducer(fake_broker.address, batch_bytes=200) as producer:
        for number in range(20):
            producer.send("t", b"%050d" % number)
    following = 0
    for header in store.headers():
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 0, following)
        following += header.count
    assert following == 20


def test_a_batch_without_a_response_is_sent_again_unchanged(fake_broker, hang_up):
    fake_broker.topics = {"t": [1]}
    store = Store(fake_broker, errors=[hang_up])
    with RecordProducer(fake_broker.address) as producer:
        producer.send("t", b"v")
        producer.flush()
        assert producer.acknowledged == 1
    assert len(store.batches) == 2
    assert store.batches[0] == store.batches[1]


def test_a_duplicate_is_an_acknowledgement(fake_broker):
    fake_broker.topics = {"t": [1]}
    Store(fake_broker, errors=[Errors.DUPLICATE_SEQUENCE_NUMBER])
    with RecordProducer(fake_broker.address) as producer:
        producer.send("t", b"v")
        producer.flush()
        assert producer.acknowledged == 1


def test_after_a_new_leader_was_elected_the_batch_goes_there(fake_broker, second_broker):
    fake_broker.topics["t"] = [1]
    old, new = Store(fake_broker), Store(second_broker)

    def moved(request):
        fake_broker.topics["t"] = [2]
        old.errors = [Errors.NOT_LEADER_OR_FOLLOWER]
        return old.answer(request)

    fake_broker.answers[apis.PRODUCE.key] = moved
    with RecordProducer(fake_broker.address) as producer:
        producer.send("t", b"v")
    assert (old.stored, new.values()) == ([], [b"v"])


def test_a_refusal_names_topic_partition_and_reason_and_ends_the_producer(fake_broker):
    fake_broker.topics = {"t": [1]}
    Store(fake_broker, errors=[Errors.MESSAGE_TOO_LARGE])
    with RecordProducer(fake_broker.address) as producer:
        delivery = producer.send("t", b"v")
        with pytest.raises(ProduceFailed, match="1 record for t-0 not stored: MESSAGE_TOO_LARGE") as error:
            producer.flush()
        assert delivery.error is error.value
        with pytest.raises(ProduceFailed):
            producer.send("t", b"more")
        with pytest.raises(ProduceFailed):
            producer.flush()


def test_a_topic_of_an_old_format_says_which_acks_it_takes(fake_broker):
    fake_broker.topics = {"t": [1]}
    Store(fake_broker, errors=[Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT] * 2)
    with RecordProducer(fake_broker.address) as producer:
        producer.send("t", b"v")
        with pytest.raises(ProduceFailed, match=r"acks=1 \(kafkapy produce --acks 1\)") as failed:
            producer.flush()
    assert failed.value.error.code == Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT
    with RecordProducer(fake_broker.address, acks=1) as producer:
        producer.send("t", b"v")
        with pytest.raises(ProduceFailed) as failed:
            producer.flush()
    assert "--acks" not in str(failed.value)


def test_a_batch_is_given_up_after_the_time_out(fake_broker):
    fake_broker.topics = {"t": [1]}
    Store(fake_broker, errors=[Errors.NOT_ENOUGH_REPLICAS] * 1000000)
    with RecordProducer(fake_broker.address, timeout_s=0.3) as producer:
        producer.send("t", b"v")
        with pytest.raises(ProduceFailed, match="NOT_ENOUGH_REPLICAS"):
            producer.flush()


def test_a_partition_without_a_leader_does_not_hold_up_the_others(fake_broker):
    fake_broker.topics = {"t": [-1, 1]}
    store = Store(fake_broker)
    with RecordProducer(fake_broker.address) as producer:
        waits = producer.send("t", b"waits", partition=0)
        producer.send("t", b"goes", partition=1)
        for batch in list(producer._open.values()):
            producer._close_batch(batch)
        while not store.stored:
            producer._outbox.step(wait=True)
        assert store.values() == [b"goes"]
        assert not waits.done
        fake_broker.topics["t"] = [1, 1]
        producer.flush()
    assert store.values() == [b"goes", b"waits"]


def test_a_partition_that_gets_no_leader_in_time_is_named(fake_broker):
    fake_broker.topics = {"t": [-1, 1]}
    with RecordProducer(fake_broker.address, timeout_s=0.3) as producer:
        producer.send("t", b"v", partition=0)
        with pytest.raises(ProduceFailed, match=r"t-0.*LEADER_NOT_AVAILABLE.*no leader for 0\.3 s"):
            producer.flush()


def test_records_without_a_key_go_to_partitions_with_a_leader(fake_broker):
    fake_broker.topics = {"t": [-1, 1, -1, 1]}
    store = Store(fake_broker)
    with RecordProducer(fake_broker.address, batch_bytes=200) as producer:
        for _ in range(100):
            producer.send("t", bytes(50))
        producer.flush()
    assert {partition for _, partition, _ in store.stored} == {1, 3}


def test_without_acknowledgements_nothing_is_waited_for(fake_broker, silence):
    fake_broker.topics = {"t": [1]}
    arrived = []
    fake_broker.answers[apis.PRODUCE.key] = lambda request: arrived.append(request) or silence
    fake_broker.answers[apis.LIST_OFFSETS.key] = lambda request: apis.LIST_OFFSETS.Response()
    with RecordProducer(fake_broker.address, acks=0) as producer:
        delivery = producer.send("t", b"v")
        producer.flush()
        # The next response on the same connection belongs to the next request: none was left unread.
        request = apis.LIST_OFFSETS.Request(replica_id=-1, topics=[])
        assert producer.cluster.connection(1).call(apis.LIST_OFFSETS, request).topics == []
    assert delivery.done
    assert [request.acks for request in arrived] == [0]


def test_one_request_has_one_batch_a_partition(fake_broker):
    fake_broker.topics = {"t": [1, 1]}
    Store(fake_broker)
    with RecordProducer(fake_broker.address, batch_bytes=200) as producer:
        for number in range(40):
            producer.send("t", b"%050d" % number, partition=number % 2)
    requests = fake_broker.requests("Produce")
    assert len(requests) > 1
    for request in requests:
        indexes = [part.index for topic in request.topic_data for part in topic.partition_data]
        assert len(indexes) == len(set(indexes))


def test_a_partition_that_is_not_there_is_refused_when_it_is_given(fake_broker):
    fake_broker.topics = {"t": [1]}
    with RecordProducer(fake_broker.address) as producer, pytest.raises(KafkaError, match="no partition 1"):
        producer.send("t", b"v", partition=1)


def test_a_partition_that_was_added_can_be_given(fake_broker):
    fake_broker.topics = {"t": [1]}
    store = Store(fake_broker)
    with RecordProducer(fake_broker.address) as producer:
        producer.send("t", b"0", partition=0)
        fake_broker.topics = {"t": [1, 1]}
        producer.send("t", b"1", partition=1)
    assert sorted(index for _, index, _ in store.stored) == [0, 1]


def test_partitions_that_were_added_are_noticed_once_the_metadata_is_too_old(fake_broker):
    fake_broker.topics = {"t": [1]}
    Store(fake_broker)
    with RecordProducer(fake_broker.address) as producer:
        producer.send("t", b"0")
        fake_broker.topics = {"t": [1, 1]}
        producer.flush()
        assert producer.partition_count("t") == 1
        producer._refresh_at = 0.0
        producer.send("t", b"1")
        producer.flush()
        assert producer.partition_count("t") == 2
        assert producer._refresh_at > 0.0


def test_a_record_without_key_goes_where_there_is_a_leader_after_its_partition_has_lost_it(fake_broker):
    fake_broker.topics = {"t": [1, 1]}
    store = Store(fake_broker)
    with RecordProducer(fake_broker.address) as producer:
        for value in (b"1", b"2"):
            producer.send("t", value)
            producer.flush()
        ((_, lost, _), (_, again, _)) = store.stored
        assert again == lost  # the partition changes only when its batch is full
        fake_broker.topics["t"][lost] = -1
        producer.cluster.refresh(["t"])
        producer.send("t", b"3")
        producer.flush()
        assert store.stored[2][1] != lost
        assert producer.available_partitions("t", 2) == [1 - lost]
        producer.cluster.topics.pop("t")  # until the metadata comes, the last known one is used
        assert producer.available_partitions("t", 2) == [1 - lost]


def test_an_answer_without_the_partition_is_a_failure(fake_broker):
    fake_broker.topics = {"t": [1]}
    fake_broker.answers[apis.PRODUCE.key] = lambda _: apis.PRODUCE.Response()
    with RecordProducer(fake_broker.address) as producer:
        producer.send("t", b"v")
        with pytest.raises(ProduceFailed, match="leaves this partition out"):
            producer.flush()


@pytest.mark.parametrize("wrong", [{"acks": 2}, {"acks": 1, "idempotent": True}])
def test_settings_that_do_not_go_together_are_refused(fake_broker, wrong):
    with pytest.raises(ValueError, match="acks"):
        RecordProducer(fake_broker.address, **wrong)


def test_a_with_block_that_raises_does_not_send_the_remaining_records(fake_broker):
    fake_broker.topics = {"t": [1]}
    store = Store(fake_broker)

    def fails():
        with RecordProducer(fake_broker.address) as producer:
            producer.send("t", b"v")
            raise ClientError("stop")

    with pytest.raises(ClientError):
        fails()
    assert store.batches == []
