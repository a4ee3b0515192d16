"""The properties of a mirror's clients. An error is one sentence that begins with the name of the properties file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafkapy.client.properties import ClientProperties


class BadProperty(ValueError):
    """A property or its value cannot be used. The message has the file, the property, the value and what is valid."""


def mirror_properties(given: Mapping[str, str], file: str, names: Iterable[tuple[str, ...]] = ()) -> ClientProperties:
    """Return the properties of one client of a mirror, which raise BadProperty. `names` as for ClientProperties."""
    return ClientProperties(
        given,
        names=names,
        where=f"{file}: ",
        error=BadProperty,
        cannot="cannot be set for a mirror",
        no_effect="has no effect on a mirror",
    )
