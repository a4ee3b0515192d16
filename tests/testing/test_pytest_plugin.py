"""The pytest plugin, as other projects' tests use it."""

import subprocess
import sys

import pytest

from kafkapy.testing.zookeeper import JARS_VARIABLE
from tests.harness.zookeeper import jars_in

pytest_plugins = ["pytester"]


def test_the_fixtures_are_a_running_broker_and_a_topic_for_each_test(pytester):
    pytester.makepyfile(
        """
        from kafkapy.client import Admin, Consumer, RecordProducer

        seen = set()

        def send_and_read(broker, topic):
            assert topic not in seen
            seen.add(topic)
            with RecordProducer(broker.bootstrap_servers) as producer:
                producer.send(topic, b"hello")
            with Consumer(broker.bootstrap_servers) as consumer:
                consumer.assign_topic(topic)
                assert [record.value for record in consumer.records()] == [b"hello"]

        def test_one(kafkapy_broker, kafkapy_topic):
            send_and_read(kafkapy_broker, kafkapy_topic)

        def test_one_with_odd_name(kafkapy_broker, kafkapy_topic):
            send_and_read(kafkapy_broker, kafkapy_topic)

        def test_the_topics_of_other_tests_are_gone(kafkapy_broker, kafkapy_topic):
            with Admin(kafkapy_broker.bootstrap_servers) as admin:
                assert [topic.name for topic in admin.list_topics()] == [kafkapy_topic]
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=3)


@pytest.mark.other_runtime
def test_a_fixture_is_a_running_cluster_of_three(pytester, tmp_path, monkeypatch):
    monkeypatch.setenv(JARS_VARIABLE, str(jars_in(tmp_path / "libs")))
    pytester.makepyfile(
        """
        from kafkapy.client import Admin

        def test_one(kafkapy_cluster):
            with Admin(kafkapy_cluster.bootstrap_servers) as admin:
                assert sorted(broker.node_id for broker in admin.describe_cluster().brokers) == [1, 2, 3]
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=1)


def test_a_run_that_uses_no_fixture_loads_no_broker():
    code = (
        "import sys, kafkapy.testing.pytest_plugin\n"
        "print([name for name in sys.modules if name.startswith(('kafkapy.server', 'kafkapy.client', 'kafkapy._ext'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_test_may_delete_its_topic(pytester):
    pytester.makepyfile(
        """
        from kafkapy.client import Admin

        def test_one(kafkapy_broker, kafkapy_topic):
            with Admin(kafkapy_broker.bootstrap_servers) as admin:
                admin.delete_topics([kafkapy_topic])
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=1)  # an error at teardown would be errors=1
