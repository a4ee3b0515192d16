"""A broker in this process, and a socket to it that speaks frames."""

import socket
import struct

import pytest

from kafkapy.protocol.apis import Api
from kafkapy.protocol.headers import read_response_header, request_frame
from kafkapy.server.broker import BrokerServer
from kafkapy.server.config.broker_config import BrokerConfig


def start_broker(log_dir, *, files=None, wait=True, **settings):
    """A started broker on a free port, with all logs loaded; names of settings with underscores for dots."""
    config = BrokerConfig(
        {
            "log.dirs": str(log_dir),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    server = BrokerServer(config, files=files)
    server.start()
    if wait:
        server.wait_until_loaded()
    return server


class Wire:
    """Requests and responses over one connection, each in the version asked."""

    def __init__(self, server: BrokerServer) -> None:
        host, port = server.bootstrap_servers.rsplit(":", 1)
        self.sock = socket.create_connection((host, int(port)), timeout=30)
        self._correlation = 0

    def send(self, api: Api, version: int, message) -> int:
        self._correlation += 1
        self.sock.sendall(request_frame(api, version, self._correlation, "wire", message))
        return self._correlation

    def receive(self, api: Api, version: int):
        """(correlation id, response)."""
        frame = self.frame()
        correlation, body = read_response_header(frame, api, version)
        return correlation, api.decode_response(frame, version, body)

    def frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def call(self, api: Api, version: int, message):
        asked = self.send(api, version, message)
        correlation, response = self.receive(api, version)
        assert correlation == asked
        return response

    def closed(self) -> bool:
        """Whether the broker has closed the connection, without a further answer."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.sock.close()

    def _exactly(self, size: int) -> bytes:
        parts = b""
        while len(parts) < size:
            part = self.sock.recv(size - len(parts))
            if not part:
                raise ConnectionError(f"closed after {len(parts)} of {size} bytes")
            parts += part
        return parts


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    server = start_broker(tmp_path_factory.mktemp("broker"), broker_id=0)
    yield server
    server.stop()


@pytest.fixture
def wire(broker):
    connection = Wire(broker)
    yield connection
    connection.close()
