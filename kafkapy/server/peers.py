"""The connections on which this broker sends requests to other brokers of its cluster.

Addresses come from the metadata cache, for the inter-broker listener. A link is opened with its first request, and
again after a failure, so a broker that is alone has none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkapy.metadata.cache import NO_CONTROLLER
from kafkapy.server.config.listeners import SASL_PROTOCOLS

if TYPE_CHECKING:
    from kafkapy.network.socket_server import SocketServer
    from kafkapy.replica.links import Address, Link
    from kafkapy.security.sasl.client import ClientMechanism
    from kafkapy.server.for_brokers import OwnController
    from kafkapy.server.services import Services

_CONTROLLER = "to-controller"


class Peers:
    """The links to other brokers: one for each broker and purpose. Any thread may call all methods."""

    def __init__(self, services: Services, network: SocketServer) -> None:
        self._services = services
        self._network = network
        self._lock = threading.Lock()
        self._links: dict[tuple[int, str], Link] = {}
        self._closed = False

    def link(self, broker_id: int, purpose: str) -> Link:
        """Return the link to a broker for a purpose, such as "markers", which becomes part of its client id.

        Requests on one link are sent and answered in order. If the broker is not alive, requests fail with LinkError.
        """
        key = broker_id, purpose
        link = self._links.get(key)
        if link is not None:
            return link
        with self._lock:
            link = self._links.get(key)
            if link is None:
                link = self._links[key] = self.make(broker_id, purpose)
                if self._closed:
                    link.close()
        return link

    def make(
        self,
        broker_id: int,
        purpose: str,
        address: Callable[[], Address | None] | None = None,
        *,
        receive_buffer: int = -1,
    ) -> Link:
        """Return a new link to a broker, which the caller must close. `receive_buffer` is that of Link. `address()`
        returns the broker's address, by default that of the metadata cache.
        """
        from kafkapy.replica.links import Link  # imported only when needed, for a fast start

        services = self._services
        return Link(
            f"broker {broker_id}",
            address or (lambda: self.address(broker_id)),
            self._network,
            services.disk_pool.submit,
            client_id=f"broker-{services.broker_id}-{purpose}",
            connect_timeout_s=services.config["socket.connection.setup.timeout.ms"] / 1000,
            receive_buffer=receive_buffer,
            prepare=None if services.secured is None else services.secured.prepare_dial,
            mechanism=self._login(),
        )

    def _login(self) -> Callable[[str], ClientMechanism] | None:
        """Return the function that makes a login at another broker, None if the inter-broker listener needs none."""
        services = self._services
        if services.config.protocol_of(services.config.inter_broker_listener) not in SASL_PROTOCOLS:
            return None
        from kafkapy.server.inter_broker_login import new_login

        return lambda host: new_login(services.config, host)

    def address(self, broker_id: int) -> Address | None:
        """Return the broker's address on the inter-broker listener, None if the broker is not alive."""
        node = self._services.cache.node(broker_id, self._services.config.inter_broker_listener)
        return None if node is None else (node.host, node.port)

    def controller(self) -> Link | OwnController | None:
        """Return the link to the controller, which may be this broker. None if there is no controller."""
        controller = self._services.cache.controller_id
        if controller == NO_CONTROLLER:
            return None
        if controller == self._services.broker_id:
            from kafkapy.server.for_brokers import OwnController

            return OwnController(self._services)
        return self.link(controller, _CONTROLLER)

    def forget_controller(self, broker_id: int) -> None:
        """Close the link to a broker that is not the controller any more. Requests without a response fail, so that
        they are sent to the next controller at once: the former one may be frozen, or cut off from ZooKeeper, and hold
        its responses back.
        """
        with self._lock:
            link = self._links.pop((broker_id, _CONTROLLER), None)
        if link is not None:
            link.close()

    def close(self) -> None:
        """Close all links. Requests that have no response yet, and later ones, fail with LinkError."""
        with self._lock:
            self._closed = True
            links = list(self._links.values())
        for link in links:
            link.close()
