"""Administration of replicas: when the controller is asked again."""

from kafkapy.client.administration.partition_admin import PartitionAdmin
from kafkapy.errors import Errors
from kafkapy.protocol import apis


def test_an_election_is_asked_for_again_if_the_broker_is_not_the_controller(fake_broker):
    """In a cluster with ZooKeeper, such a broker has the error on each partition only."""
    shape = apis.ELECT_LEADERS.Response.ReplicaElectionResults
    codes = iter([Errors.NOT_CONTROLLER, Errors.NONE])

    def answer(request):
        (topic,) = request.topic_partitions
        code = next(codes)
        results = [shape.PartitionResult(partition_id=index, error_code=code) for index in topic.partitions]
        return apis.ELECT_LEADERS.Response(
            replica_election_results=[shape(topic=topic.topic, partition_result=results)]
        )

    fake_broker.answers[apis.ELECT_LEADERS.key] = answer
    with PartitionAdmin(fake_broker.address) as admin:
        assert admin.elect_leaders([("t", 0), ("t", 1)]) == {("t", 0): None, ("t", 1): None}
    assert len(fake_broker.requests("ElectLeaders")) == 2
