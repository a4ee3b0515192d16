"""A broker that cannot start says why in a sentence with the wrong value, and ends with the right exit code."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.brokers import READY, KafkapyBroker, Process, kafkapy_command
from tests.harness.raw import Connection, values

FAILED, WRONG_CALL = 1, 2
GOLDEN = Path(__file__).parents[1] / "data" / "golden" / "kafka-3.9.1-v2" / "data"


def refused(*arguments: str) -> tuple[int, str]:
    """Start a broker that must fail. Return its exit code and error output. The test fails if the broker stays up."""
    done = subprocess.run(
        [*kafkapy_command(), "start", *arguments], capture_output=True, text=True, timeout=30, check=False
    )
    assert not READY.search(done.stdout), f"it says that it is ready: {done.stdout}"
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def of(directory: Path | str, *more: str) -> list[str]:
    """Return the arguments of a start that succeeds if the directory can be used."""
    settings = [f"log.dirs={directory}", "listeners=PLAINTEXT://127.0.0.1:0", *more]
    return [word for setting in settings for word in ("-o", setting)]


def test_a_file_in_place_of_the_data_directory(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_text("not a directory")
    code, output = refused(*of(file))
    assert code == FAILED
    assert str(file) in output
    assert file.read_text() == "not a directory"


def test_a_data_directory_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, output = refused(*of(tmp_path / "file" / "data"))
    assert code == FAILED
    assert str(tmp_path / "file" / "data") in output


def test_a_data_directory_that_is_not_writable(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir(mode=0o555)
    if os.access(directory, os.W_OK):  # root may write everywhere except in /sys
        directory = Path("/sys/kernel")
    code, output = refused(*of(directory))
    assert code == FAILED
    assert str(directory) in output


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, output = refused(*of(tmp_path / "data", f"listeners=PLAINTEXT://127.0.0.1:{port}"))
    assert code == FAILED
    assert str(port) in output


def test_an_address_of_another_machine(tmp_path: Path) -> None:
    code, output = refused(*of(tmp_path / "data", "listeners=PLAINTEXT://192.0.2.7:0"))
    assert code == FAILED
    assert "192.0.2.7" in output


def test_a_second_broker_on_the_same_directory(tmp_path: Path) -> None:
    first = KafkapyBroker(tmp_path)
    try:
        code, output = refused(*of(first.data))
        assert code == FAILED
        assert str(first.data) in output
        with Connection(first.bootstrap) as connection:  # the first broker still works
            assert connection.create_topic("t") == 0
            assert connection.produce("t", 0, values(b"x")) == (0, 0)
    finally:
        first.stop()


WRONG_SETTINGS = {
    "a word for a number": ("num.network.threads", "many"),
    "a number out of range": ("num.network.threads", "0"),
    "a word for a boolean": ("auto.create.topics.enable", "perhaps"),
    "an unknown cleanup policy": ("log.cleanup.policy", "burn"),
    "an unknown codec": ("compression.type", "rar"),
    "a listener without a port": ("listeners", "PLAINTEXT://127.0.0.1"),
    "a listener that is none": ("listeners", "here"),
    "a port out of range": ("listeners", "PLAINTEXT://127.0.0.1:70000"),
    "an unknown protocol": ("listeners", "FOO://127.0.0.1:0"),
    "two listeners on one port": ("listeners", "PLAINTEXT://127.0.0.1:9092,OTHER://127.0.0.1:9092"),
    "zookeeper": ("zookeeper.connect", "127.0.0.1:port"),
    "our own": ("kafkapy.zero.copy.enable", "sometimes"),
}


@pytest.mark.parametrize(("key", "value"), WRONG_SETTINGS.values(), ids=WRONG_SETTINGS.keys())
def test_a_wrong_setting_on_the_command_line(tmp_path: Path, key: str, value: str) -> None:
    code, output = refused(*of(tmp_path / "data", f"{key}={value}"))
    assert code == WRONG_CALL
    assert key in output
    assert value.partition(",")[0] in output
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(("key", "value"), WRONG_SETTINGS.values(), ids=WRONG_SETTINGS.keys())
def test_a_wrong_setting_in_the_file(tmp_path: Path, key: str, value: str) -> None:
    file = tmp_path / "server.properties"
    listeners = "" if key == "listeners" else "listeners=PLAINTEXT://127.0.0.1:0\n"
    file.write_text(f"log.dirs={tmp_path}/data\n{listeners}{key}={value}\n")
    code, output = refused(str(file))
    assert code == FAILED
    assert key in output
    assert value.partition(",")[0] in output


def test_wrong_command_line_arguments(tmp_path: Path) -> None:
    for arguments, named in (
        (["-o", "log.dirs"], "log.dirs"),
        (["-o"], "-o"),
        (["--no-such-option"], "--no-such-option"),
        (["one.properties", "two.properties"], "two.properties"),
    ):
        code, output = refused(*arguments)
        assert code == WRONG_CALL, arguments
        assert named in output


def test_a_properties_file_that_is_not_there(tmp_path: Path) -> None:
    code, output = refused(str(tmp_path / "server.properties"))
    assert code == FAILED
    assert str(tmp_path / "server.properties") in output


def test_unknown_settings_and_those_without_effect_are_named_once(tmp_path: Path) -> None:
    broker = KafkapyBroker(tmp_path, {"no.such.setting": "1", "zookeeper.clientCnxnSocket": "Some"})
    broker.stop()
    output = broker.process.output
    assert output.count("no.such.setting") == 1
    assert output.count("zookeeper.clientCnxnSocket") == 1


def test_a_directory_that_apache_kafka_wrote_is_left_alone(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN, tmp_path / "data")
    before = {path: path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()}
    code, output = refused(*of(tmp_path / "data"))
    assert code == FAILED
    assert str(tmp_path / "data") in output
    after = {path: path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()}
    assert {path: after.get(path) for path in before} == before


def test_a_directory_of_another_cluster_is_refused(tmp_path: Path) -> None:
    broker = KafkapyBroker(tmp_path)
    broker.stop()
    meta = broker.data / "meta.properties"
    lines = [line for line in meta.read_text().splitlines() if not line.startswith("cluster.id=")]
    meta.write_text("\n".join([*lines, "cluster.id=AAAAAAAAAAAAAAAAAAAAAA", ""]))
    code, output = refused(*of(broker.data))
    assert code == FAILED
    assert "AAAAAAAAAAAAAAAAAAAAAA" in output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_broker_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    broker = KafkapyBroker(tmp_path)
    with Connection(broker.bootstrap) as connection:
        assert connection.create_topic("t") == 0
        assert connection.produce("t", 0, values(b"x")) == (0, 0)
        broker.process.child.send_signal(number)
        assert broker.process.child.wait(30) == 0
    assert (broker.data / ".kafka_cleanshutdown").exists()


def test_python_minus_m_starts_the_broker_too(tmp_path: Path) -> None:
    process = Process([sys.executable, "-m", "kafkapy", "start", *of(tmp_path / "data")], tmp_path / "log")
    process.wait_for_line(READY, 30)
    assert process.stop() == 0
