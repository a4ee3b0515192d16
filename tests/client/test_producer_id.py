"""The id and sequence numbers of a producer's batches."""

from kafkapy.client.cluster import Cluster
from kafkapy.client.producing.producer_id import NO_ID, ProducerId, ProducerSequences
from kafkapy.protocol import apis


def test_each_partition_is_numbered_on_its_own():
    sequences = ProducerSequences()
    assert [sequences.next_sequence(("t", part), 5) for part in (0, 1, 0, 0, 1)] == [0, 0, 5, 10, 5]


def test_the_number_after_the_largest_is_zero():
    sequences = ProducerSequences()
    sequences.next_sequence(("t", 0), 0x7FFFFFFF)
    assert sequences.next_sequence(("t", 0), 3) == 0x7FFFFFFF
    assert sequences.next_sequence(("t", 0), 1) == 2


def test_a_producer_id_is_acquired_once_until_the_reset(fake_broker):
    ids = iter((7, 8))
    shape = apis.INIT_PRODUCER_ID.Response
    fake_broker.answers[apis.INIT_PRODUCER_ID.key] = lambda _: shape(producer_id=next(ids), producer_epoch=0)
    sequences = ProducerSequences()
    with Cluster(fake_broker.address) as cluster:
        for expected in (7, 7):
            sequences.acquire(cluster)
            assert sequences.current == ProducerId(expected, 0)
        sequences.next_sequence(("t", 0), 5)
        sequences.reset()
        assert sequences.current == NO_ID
        sequences.acquire(cluster)
    assert sequences.current == ProducerId(8, 0)
    assert sequences.next_sequence(("t", 0), 1) == 0


def test_an_id_that_the_caller_gives_is_kept(fake_broker):
    sequences = ProducerSequences()
    sequences.reset(ProducerId(5, 3))
    with Cluster(fake_broker.address) as cluster:
        sequences.acquire(cluster)
    assert sequences.current == ProducerId(5, 3)
    assert fake_broker.requests("InitProducerId") == []
