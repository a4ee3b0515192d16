"""The login of this broker at the others, with the mechanism `sasl.mechanism.inter.broker.protocol`.

As in Kafka, user and password are in the JAAS line of the mechanism on the inter-broker listener,
`listener.name.NAME.MECHANISM.sasl.jaas.config`, as `username` and `password`.
Source: ChannelBuilders, JaasContext of Kafka 3.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkapy.security.sasl.client import ClientMechanism, client_mechanism
from kafkapy.security.sasl.errors import SaslSettingError
from kafkapy.security.sasl.jaas import parse_jaas
from kafkapy.server.config.keys import BROKER_KEYS
from kafkapy.server.config.sasl import INTER_BROKER, JAAS, full_name

if TYPE_CHECKING:
    from kafkapy.server.config.broker_config import BrokerConfig

_OF_CLIENTS = ("sasl.oauthbearer.", "sasl.login.")


def new_login(config: BrokerConfig, host: str) -> ClientMechanism:
    """Return a new login at the broker at `host`. Raise SaslSettingError if a setting is missing or invalid."""
    return client_mechanism(login_settings(config), host)


def login_name(config: BrokerConfig) -> str | None:
    """Return the name of the user as which this broker logs in, None if only the login tells it (OAUTHBEARER)."""
    settings = login_settings(config)
    if settings["sasl.mechanism"] == "OAUTHBEARER" or settings[JAAS] is None:
        return None
    try:
        return parse_jaas(JAAS, settings[JAAS])[1].get("username")
    except SaslSettingError:
        return None  # the first login reports the error


def login_settings(config: BrokerConfig) -> dict[str, Any]:
    """Return the SASL settings of this broker as a client of the others, by the names for clients."""
    mechanism, listener = config[INTER_BROKER].upper(), config.inter_broker_listener
    settings: dict[str, Any] = {"sasl.mechanism": mechanism, JAAS: config.given(full_name(listener, JAAS, mechanism))}
    for name in BROKER_KEYS:
        if name.startswith(_OF_CLIENTS):
            value = config.of_listener(listener, name, mechanism)
            settings[name] = str(value).lower() if isinstance(value, bool) else value
    return settings
