"""Clients describe and change log levels while the broker runs."""

import logging

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.apis import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from kafkapy.server.config.alter import APPEND, DELETE, SET, SUBTRACT
from kafkapy.server.log_levels import alter, levels

LOGGER = 8


@pytest.fixture(autouse=True)
def tree():
    """Create loggers for this test below a parent with a known level, and reset their levels afterwards."""
    logging.getLogger("kafkapy").setLevel(logging.INFO)
    names = ("kafkapy.lab", "kafkapy.lab.one", "kafkapy.lab.one.deep", "kafkapy.lab.two")
    loggers = [logging.getLogger(name) for name in names]
    yield
    for logger in loggers:
        logger.setLevel(logging.NOTSET)


def lab():
    return {name: level for name, level in levels().items() if name == "root" or name.startswith("lab")}


def refused(*operations):
    with pytest.raises(KafkaError) as caught:
        alter(operations, validate_only=False)
    return caught.value.code


def test_a_logger_has_the_level_of_the_next_one_above_it():
    assert lab() == dict.fromkeys(("lab", "lab.one", "lab.one.deep", "lab.two", "root"), "INFO")
    alter([("lab.one", SET, "DEBUG"), ("root", SET, "ERROR")], validate_only=False)
    assert lab() == {"lab": "ERROR", "lab.one": "DEBUG", "lab.one.deep": "DEBUG", "lab.two": "ERROR", "root": "ERROR"}
    assert logging.getLogger("kafkapy.lab.one.deep").isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("kafkapy.lab.two").isEnabledFor(logging.WARNING)
    alter([("lab.one", DELETE, None)], validate_only=False)
    assert lab() == dict.fromkeys(("lab", "lab.one", "lab.one.deep", "lab.two", "root"), "ERROR")


@pytest.mark.parametrize("level", ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"])
def test_every_level_of_kafka_is_kept_as_it_was_set(level):
    alter([("lab.two", SET, level)], validate_only=False)
    assert levels(["lab.two"]) == {"lab.two": level}


def test_a_level_that_has_no_name_is_shown_as_the_least_severe_that_is_logged():
    logging.getLogger("kafkapy.lab.two").setLevel(25)
    assert levels(["lab.two"]) == {"lab.two": "WARN"}
    logging.getLogger("kafkapy.lab.two").setLevel(99)
    assert levels(["lab.two"]) == {"lab.two": "FATAL"}


def test_a_refused_request_changes_no_log_level():
    good = ("lab.one", SET, "DEBUG")
    assert refused(good, ("lab.nobody", SET, "DEBUG")) == Errors.INVALID_CONFIG
    assert refused(good, ("lab.nobody", DELETE, None)) == Errors.INVALID_CONFIG
    assert refused(good, ("lab.two", SET, "debug")) == Errors.INVALID_CONFIG
    assert refused(good, ("lab.two", SET, "OFF")) == Errors.INVALID_CONFIG
    assert refused(good, ("lab.two", SET, None)) == Errors.INVALID_REQUEST
    assert refused(good, ("root", DELETE, None)) == Errors.INVALID_REQUEST
    assert refused(good, ("lab.two", APPEND, "DEBUG")) == Errors.INVALID_REQUEST
    assert refused(good, ("lab.two", SUBTRACT, "DEBUG")) == Errors.INVALID_REQUEST
    assert refused(good, ("lab.two", 9, "DEBUG")) == Errors.INVALID_REQUEST
    assert refused(good, good) == Errors.INVALID_REQUEST
    alter([good], validate_only=True)
    assert set(lab().values()) == {"INFO"}


def incremental(wire, name, *configs, validate_only=False):
    make = INCREMENTAL_ALTER_CONFIGS.Request
    settings = [make.Resources.Configs(name=one, config_operation=what, value=value) for one, what, value in configs]
    resource = make.Resources(resource_type=LOGGER, resource_name=name, configs=settings)
    request = make(resources=[resource], validate_only=validate_only)
    (answer,) = wire.call(INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    assert (answer.resource_type, answer.resource_name) == (LOGGER, name)
    return answer.error_code


def describe(wire, name, keys=None, version=4):
    make = DESCRIBE_CONFIGS.Request
    resource = make.Resources(resource_type=LOGGER, resource_name=name, configuration_keys=keys)
    request = make(resources=[resource], include_synonyms=version > 0)
    (answer,) = wire.call(DESCRIBE_CONFIGS, version, request).results
    return answer


def test_a_client_describes_and_changes_log_levels(wire):
    assert incremental(wire, "0", ("lab.one", SET, "TRACE")) == Errors.NONE
    answer = describe(wire, "0")
    assert answer.error_code == Errors.NONE
    found = {entry.name: entry for entry in answer.configs}
    assert found["lab.one.deep"].value == "TRACE"
    assert found["root"].value == "INFO"
    assert found["server.configs"].value == "INFO"
    entry = found["lab.one"]
    assert (entry.config_source, entry.read_only, entry.is_sensitive, entry.synonyms) == (6, False, False, [])
    assert [entry.name for entry in describe(wire, "0", ["root", "no.such"]).configs] == ["root"]
    (entry,) = describe(wire, "0", ["root"], version=0).configs
    assert not entry.is_default


@pytest.mark.parametrize("name", ["", "1", "x"])
def test_log_levels_are_refused_for_another_broker_id(wire, name):
    assert describe(wire, name).error_code == Errors.INVALID_REQUEST
    assert incremental(wire, name, ("lab.one", SET, "DEBUG")) == Errors.INVALID_REQUEST
    assert set(lab().values()) == {"INFO"}


def test_validation_alone_changes_nothing(wire):
    assert incremental(wire, "0", ("lab.one", SET, "DEBUG"), validate_only=True) == Errors.NONE
    assert incremental(wire, "0", ("lab.one", SET, "OFF"), validate_only=True) == Errors.INVALID_CONFIG
    assert set(lab().values()) == {"INFO"}


def test_the_old_request_which_replaces_all_settings_is_refused(wire):
    make = ALTER_CONFIGS.Request
    config = make.Resources.Configs(name="lab.one", value="DEBUG")
    request = make(resources=[make.Resources(resource_type=LOGGER, resource_name="0", configs=[config])])
    (answer,) = wire.call(ALTER_CONFIGS, 2, request).responses
    assert answer.error_code == Errors.INVALID_REQUEST
    assert set(lab().values()) == {"INFO"}
