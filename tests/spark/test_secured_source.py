"""The source and the sink `kafkapy` with brokers that need TLS and a login: options as of Spark's own Kafka source."""

import contextlib
import io

import pytest

import kafkapy
from kafkapy.client import RecordProducer

pytestmark = pytest.mark.other_runtime
USERS = {"alice": "alice-secret-word"}


@pytest.fixture(scope="module")
def secured():
    with kafkapy.Broker(tls=True, users=USERS, process=True) as broker:
        yield broker


def options(broker, **more):
    security = {f"kafka.{name}": value for name, value in broker.client_properties("alice", "SCRAM-SHA-256").items()}
    return {"kafka.bootstrap.servers": broker.bootstrap_servers, **security, **more}


def test_a_topic_is_read_and_written_and_the_password_is_in_no_plan(spark, secured, tmp_path, capfd):
    with RecordProducer(secured.bootstrap_servers, security=secured.client_properties()) as producer:
        for number in range(100):
            producer.send("source", b"%d" % number)
    frame = spark.read.format("kafkapy").options(**options(secured, subscribe="source")).load()
    assert sorted(int(row.value) for row in frame.collect()) == list(range(100))
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        frame.explain("extended")
    assert "kafkapy" in shown.getvalue().lower()
    for delivery in ("at-least-once", "exactly-once"):
        stream = spark.readStream.format("kafkapy").options(**options(secured, subscribe="source"))
        stream = stream.option("startingOffsets", "earliest").load().select("key", "value")
        sink = stream.writeStream.format("kafkapy").options(**options(secured, topic=delivery, delivery=delivery))
        query = sink.option("checkpointLocation", str(tmp_path / delivery)).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        with contextlib.redirect_stdout(shown):
            query.explain(True)
        read = spark.read.format("kafkapy").options(
            **options(secured, subscribe=delivery, **{"kafka.isolation.level": "read_committed"})
        )
        assert sorted(int(row.value) for row in read.load().collect()) == list(range(100))
        files = [path.read_text(errors="replace") for path in (tmp_path / delivery).rglob("*") if path.is_file()]
        assert not [text for text in files if "alice-secret-word" in text]
    said = "".join(capfd.readouterr()) + shown.getvalue()
    assert "alice-secret-word" not in said


def test_a_wrong_password_ends_the_query_with_one_sentence(spark, secured):
    wrong = options(secured, subscribe="source")
    wrong["kafka.sasl.jaas.config"] = wrong["kafka.sasl.jaas.config"].replace("alice-secret-word", "wrong-word")
    with pytest.raises(Exception, match=r"The login to the broker at 127\.0\.0\.1:\d+ failed") as caught:
        spark.read.format("kafkapy").options(**wrong).load().collect()
    assert "wrong-word" not in str(caught.value)
