"""The options `kafka.*` of source and sink: properties of Kafka's clients. Error messages name the options."""

import logging
from collections.abc import Mapping
from typing import TypeVar

from kafkapy.client.properties import LONGEST, ClientProperties
from kafkapy.spark.options.given import BadOption, as_boolean, as_integer, as_word

log = logging.getLogger("kafkapy.spark")
_warned: set[str] = set()

NO_SECURITY = "has no effect while kafka.security.protocol is PLAINTEXT"

T = TypeVar("T")


class KafkaOptions(ClientProperties):
    """The options `kafka.*` that the user has given. Methods raise BadOption for an invalid value.

    Args:
        given: The values by name, without the prefix `kafka.`.
        client: The Java client that has these properties, "consumer" or "producer", for messages.
        here: "source" or "sink", for messages.
    """

    def __init__(self, given: Mapping[str, str], client: str, here: str) -> None:
        super().__init__(
            given,
            prefix="kafka.",
            error=BadOption,
            no_effect=f"has no effect on the {here} kafkapy, which does not use Kafka's Java {client}",
        )

    def warn(self, text: str) -> None:
        """Log a warning, unless this process has logged the same text before."""
        if text not in _warned:
            _warned.add(text)
            log.warning("%s.", text)

    def needed(self, name: str, example: str) -> str:
        value = self.text(name)
        if not value:
            raise BadOption(f"the option {self.called(name)} is needed: a broker's address, as in {example}")
        return value

    def number(self, name: str, default: int, *, least: int = 0, most: int = LONGEST) -> int:
        if name not in self:
            return default
        number = as_integer(self.called(name), self.text(name), least=least)
        if number > most:
            raise BadOption(f"{self.called(name)} is {self.text(name)!r}: the maximum is {most}")
        return number

    def word(self, name: str, words: Mapping[str, T], default: str) -> T:
        return words[as_word(self.called(name), self.text(name) if name in self else default, list(words))]

    def flag(self, name: str, default: bool) -> bool:
        return as_boolean(self.called(name), self.text(name)) if name in self else default
