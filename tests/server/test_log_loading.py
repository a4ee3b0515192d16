"""A broker keeps the topics that it needs to load its logs only until the logs are loaded."""

from types import SimpleNamespace
from unittest.mock import Mock

from kafkapy.metadata.cache import MetadataCache
from kafkapy.metadata.topics import Topic
from kafkapy.server.log_loading import LogLoading

ME = 1
TOPIC = Topic("t", bytes(range(16)), {0: [ME, 2]})


def test_a_broker_that_is_not_the_controller_keeps_the_topics_only_until_its_logs_are_loaded():
    loading = Mock(topics=lambda: ["t"], wait=Mock(side_effect=[False, True]))
    loading.__contains__ = lambda self, key: True
    topics = Mock(all=list, stored=lambda names: {"t": TOPIC}, get=lambda name: None, unreadable=set())
    topics.marked_topic.return_value = None
    services = SimpleNamespace(
        log_manager=SimpleNamespace(loading=loading),
        topics=topics,
        topic_settings=Mock(),
        replicas=Mock(is_expected=lambda topic, index: True),
        is_controller=False,
        broker_id=ME,
        cache=MetadataCache(),
    )
    found = LogLoading(services, Mock(), Mock())
    is_stray = loading.begin.call_args.args[1]
    assert services.cache.expects_topics
    assert not is_stray("t", 0, TOPIC.id)
    assert is_stray("t", 0, bytes(16))
    found.start()
    assert not found.wait(0.1)
    assert found._stored == {"t": TOPIC}
    assert found.wait()
    assert found._stored == {}
