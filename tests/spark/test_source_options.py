"""The options of the source, read without a broker, and the errors for wrong ones."""

import pytest

from kafkapy.spark.options.consumer_properties import WITHOUT_EFFECT
from kafkapy.spark.options.given import BadOption
from kafkapy.spark.options.limits import AtOffsets, AtTimestamp, Edge
from kafkapy.spark.options.offset_json import EARLIEST, LATEST
from kafkapy.spark.options.source_options import KNOWN, source_options
from kafkapy.spark.options.subscription import Subscription
from kafkapy.spark.schema import check_schema, schema_of

LEAST = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}


def options(**given):
    return source_options({**LEAST, **given})


def sentence(given):
    with pytest.raises(BadOption) as caught:
        source_options(given)
    return str(caught.value)


def test_defaults_are_those_of_spark():
    found = source_options(LEAST)
    assert found.subscription == Subscription(topics=("orders",))
    assert found.starting is None
    assert found.ending is None
    assert found.fail_on_data_loss
    assert found.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert (found.min_partitions, found.max_records_per_partition) == (None, None)
    assert (found.max_offsets, found.min_offsets, found.max_delay_s) == (None, None, 900)
    assert (found.num_retries, found.retry_interval_s, found.poll_timeout_s) == (3, 1, 120)
    assert found.consumer.isolation == "read_uncommitted"


def test_option_names_are_case_insensitive():
    found = source_options({"kafka.bootstrap.servers": "a:1", "SUBSCRIBE": "x", "FailOndataLoss": "FALSE"})
    assert not found.fail_on_data_loss


def test_values_that_are_not_the_default():
    found = options(
        minPartitions="7",
        maxRecordsPerPartition="1000",
        maxOffsetsPerTrigger="500",
        minOffsetsPerTrigger="20",
        maxTriggerDelay="90s",
        includeHeaders="true",
        **{
            "kafkaConsumer.pollTimeoutMs": "5000",
            "fetchOffset.numRetries": "5",
            "fetchOffset.retryIntervalMs": "10",
            "kafka.isolation.level": "read_committed",
            "kafka.request.timeout.ms": "7000",
            "kafka.default.api.timeout.ms": "9000",
        },
    )
    assert (found.min_partitions, found.max_records_per_partition) == (7, 1000)
    assert (found.max_offsets, found.min_offsets, found.max_delay_s) == (500, 20, 90)
    assert found.columns[-1] == "headers"
    assert (found.num_retries, found.retry_interval_s, found.poll_timeout_s) == (5, 0.01, 5)
    assert (found.consumer.isolation, found.consumer.request_timeout_s) == ("read_committed", 7)
    assert found.consumer.api_timeout_s == 9


@pytest.mark.parametrize(
    ("word", "seconds"), [("1500", 1.5), ("250ms", 0.25), ("30s", 30), ("15m", 900), ("2min", 120), ("1h", 3600)]
)
def test_max_trigger_delay_has_sparks_units(word, seconds):
    assert options(maxTriggerDelay=word).max_delay_s == seconds


def test_the_broker_sees_the_group_prefix_unless_a_client_or_a_group_is_named():
    assert options(groupIdPrefix="billing").client_id("driver") == "billing-driver"
    assert options(**{"kafka.group.id": "g", "groupIdPrefix": "p"}).client_id("executor") == "g"
    assert options(**{"kafka.client.id": "c"}).client_id("executor") == "c"


def test_columns_have_the_requested_order_and_sparks_spelling():
    assert options(columns="offset, VALUE,timestamptype").columns == ("offset", "value", "timestampType")
    assert options(columns="headers,key", includeHeaders="true").columns == ("headers", "key")
    for wrong in ("", "key,key", "key,length"):
        assert f"columns is {wrong!r}: write some of key, value" in sentence({**LEAST, "columns": wrong})
    assert "leaves out headers" in sentence({**LEAST, "columns": "key", "includeHeaders": "true"})


def test_exactly_one_of_three_options_names_the_topics():
    server = {"kafka.bootstrap.servers": "a:1"}
    assert source_options({**server, "assign": '{"a":[1,0],"b":[0]}'}).subscription == Subscription(
        assigned=(("a", 0), ("a", 1), ("b", 0))
    )
    assert source_options({**server, "subscribe": " a , b,,a"}).subscription == Subscription(topics=("a", "b"))
    pattern = source_options({**server, "subscribePattern": " ord.rs$ "}).subscription
    assert pattern.wants_topic("my-orders", internal=False)
    assert not pattern.wants_topic("orders-2", internal=False)
    assert not pattern.wants_topic("__orders", internal=True)
    assert "none is given" in sentence(server)
    assert "subscribe and subscribePattern are given" in sentence({**LEAST, "subscribePattern": "x"})
    assert "subscribe is ' , '" in sentence({**server, "subscribe": " , "}) or "subscribe is ','" in sentence(
        {**server, "subscribe": " , "}
    )
    assert "not a regular expression" in sentence({**server, "subscribePattern": "a("})
    assert "subscribePattern is ''" in sentence({**server, "subscribePattern": " "})
    for pattern in ("a{99999999999}", "(" * 500 + ")" * 500):
        assert "not a regular expression" in sentence({**server, "subscribePattern": pattern})
    for wrong in ("orders", "{}", '{"a":0}', '{"a":["0"]}', '{"a":[-1]}', '{"a":[true]}', "["):
        assert f"assign is {wrong!r}: write " in sentence({**server, "assign": wrong})


def test_the_global_timestamp_comes_before_the_others_and_offsets_come_last():
    every = {"startingOffsets": "latest", "startingOffsetsByTimestamp": '{"orders":{"0":5}}', "startingTimestamp": "7"}
    assert options(**every).starting == AtTimestamp(7, {}, False)
    del every["startingTimestamp"]
    assert options(**every).starting == AtTimestamp(None, {("orders", 0): 5}, False)
    del every["startingOffsetsByTimestamp"]
    assert options(**every).starting == Edge(LATEST)
    assert options(startingOffsets="EARLIEST").starting == Edge(EARLIEST)
    assert options(endingOffsets='{"orders":{"0":-1,"1":4}}').ending == AtOffsets({("orders", 0): -1, ("orders", 1): 4})


def test_the_strategy_holds_for_starting_times_and_an_end_is_never_an_error():
    assert options(startingTimestamp="1", startingOffsetsByTimestampStrategy="LATEST").starting.or_latest
    assert options(endingTimestamp="1").ending.or_latest
    assert "write error or latest" in sentence({**LEAST, "startingOffsetsByTimestampStrategy": "earliest"})


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
@pytest.mark.parametrize(
    "wrong", ["now", "5", '{"orders":5}', '{"orders":{"0":"5"}}', '{"orders":{"x":5}}', '{"a":{"0":-3}}']
)
def test_offsets_in_another_form_are_refused(option, wrong):
    assert f"{option} is {wrong!r}: write " in sentence({**LEAST, option: wrong})


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("startingTimestamp", "yesterday", "write milliseconds since 1970, as in 1718000000000"),
        ("startingTimestamp", "-1", "write milliseconds since 1970, as in 1718000000000"),
        ("endingOffsetsByTimestamp", '{"orders":{"0":-1}}', "ms since 1970"),
        ("failOnDataLoss", "no", "write true or false"),
        ("minPartitions", "0", "write a whole number, 1 or more"),
        ("maxRecordsPerPartition", "many", "write a whole number, 1 or more"),
        ("maxOffsetsPerTrigger", "9223372036854775808", "write a whole number, 1 or more"),
        ("maxTriggerDelay", "soon", "write a number and a unit"),
        ("maxTriggerDelay", "5 weeks", "write a number and a unit"),
        ("maxTriggerDelay", "9" * 5000 + "s", "write a number and a unit"),
        ("maxOffsetsPerTrigger", "9" * 5000, "write a whole number"),
        ("startingOffsets", '{"t":{"%s":1}}' % ("9" * 5000), "-1: latest"),
        ("startingOffsets", '{"t":{"2147483648":1}}', "-1: latest"),
        ("kafka.isolation.level", "serializable", "write read_uncommitted or read_committed"),
        ("kafka.bootstrap.servers", "localhost", "is not HOST:PORT"),
        ("kafka.bootstrap.servers", " ", "the option kafka.bootstrap.servers is needed"),
        ("kafka.security.protocol", "TLS", "it can be PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("kafka.request.timeout.ms", "1s", "write a whole number, 0 or more"),
    ],
)
def test_the_error_names_a_wrong_value_and_the_allowed_ones(option, value, message):
    found = sentence({**LEAST, option: value})
    assert option in found
    assert message in found


def test_an_unknown_option_is_refused_and_a_similar_one_suggested():
    assert "no option 'startingofset'; did you mean 'startingOffsets'?" in sentence(
        {**LEAST, "startingOfset": "latest"}
    )
    assert "no option 'path'. It has assign, " in sentence({**LEAST, "path": "x"})
    assert "did you mean kafka.fetch.max.bytes?" in sentence({**LEAST, "kafka.fetch.max.byte": "1"})


def test_a_minimum_may_not_exceed_its_maximum():
    assert "minOffsetsPerTrigger is 9, more than maxOffsetsPerTrigger, which is 5" in sentence(
        {**LEAST, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}
    )


@pytest.mark.parametrize(
    "name",
    ["auto.offset.reset", "key.deserializer", "value.deserializer", "enable.auto.commit", "interceptor.classes"],
)
def test_properties_that_spark_refuses_are_refused(name):
    assert f"kafka.{name} cannot be set: " in sentence({**LEAST, f"kafka.{name}": "x"})


def test_properties_without_effect_are_logged_as_a_warning_once(caplog):
    for _ in range(2):
        options(**{f"kafka.{name}": "1" for name in WITHOUT_EFFECT}, **{"kafka.sasl.mechanism": "PLAIN"})
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == len(set(messages))
    assert {"kafka.fetch.min.bytes", "kafka.sasl.mechanism"} <= {text.split()[0] for text in messages}


def test_a_batch_can_not_begin_at_the_end_nor_end_at_the_beginning():
    for name, value in (
        ("startingOffsets", "latest"),
        ("startingOffsets", '{"orders":{"0":-1}}'),
        ("endingOffsets", "earliest"),
        ("endingOffsets", '{"orders":{"0":-2}}'),
    ):
        with pytest.raises(BadOption, match=name):
            options(**{name: value}).check_batch()
        if name == "startingOffsets":
            options(**{name: value}).check_stream()


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_a_stream_has_no_end(name):
    value = {"endingOffsets": "latest", "endingOffsetsByTimestamp": '{"orders":{"0":1}}', "endingTimestamp": "1"}[name]
    with pytest.raises(BadOption, match=f"{name} is for batch queries"):
        options(**{name: value}).check_stream()


def test_a_schema_given_by_the_user_is_refused():
    check_schema(schema_of(("key", "value")), ("key", "value"))
    with pytest.raises(BadOption, match=r"struct<value:binary> was requested.*struct<key:binary,value:binary>"):
        check_schema(schema_of(("value",)), ("key", "value"))


def test_every_option_has_a_page():
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    assert [name for name in KNOWN if f"`{name}`" not in page] == []
