"""The properties of a mirror's producer and consumers.

An error message is one sentence that begins with the name of the properties file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafkapy.client.properties import ClientProperties


class BadProperty(ValueError):
    """A property or its value cannot be used.

    The message has the file, the property, the value and the valid values.
    """


def mirror_properties(given: Mapping[str, str], file: str, names: Iterable[tuple[str, ...]] = ()) -> ClientProperties:
    """Return a reader for the properties of a mirror's producer or consumer, whose errors are BadProperty.

    `file` is the name that error messages begin with. `names` lists properties with several names, as for
    ClientProperties.
    """
    return ClientProperties(
        given,
        names=names,
        where=f"{file}: ",
        error=BadProperty,
        cannot="cannot be set for a mirror",
        no_effect="has no effect on a mirror",
    )
