"""Formats stored records as lines for `log find` and `log tail`, in the formats of `consume` and with the decoders of
`log dump`."""

import sys
from collections.abc import Callable
from typing import Any

from kafkapy.client.fetching.consumer import ConsumerRecord
from kafkapy.log.offline.places import Place
from kafkapy.record.control import decode
from kafkapy.record.records import Record
from kafkapy.tools.common.output import utf_8
from kafkapy.tools.common.record_formats import Format, line_maker
from kafkapy.tools.log.decoders.values import DEFAULT, Decoder, compact, readable


class RecordLines:
    """Formats records as lines. Records that the decoder rejects are shown without the decoder, and counted."""

    def __init__(self, form: Format, decoder: Decoder = DEFAULT) -> None:
        self._json = form is Format.JSON
        self._decoder = decoder
        self._make: Callable[[ConsumerRecord], bytes] = line_maker(form)
        self._undecoded = 0
        self._why = ""  # of the first such record

    def line(self, place: Place, record: Record, *, control: bool = False) -> bytes:
        """Return the line for a record, line end included. For a control record, the line has its type instead of key
        and value."""
        if control:
            name = decode(record.key, record.value).name
            if self._json:
                return self._object(place, record, None, None, controlType=name)
            record = record._replace(key=None, value=f"(control record: {name})".encode())
        elif self._decoder is not DEFAULT:
            try:
                if self._json:
                    return self._object(place, record, *self._decoder.objects(record))
                shown = self._decoder.text(record)
                record = record._replace(key=_encoded(shown.key), value=_encoded(shown.value))
            except ValueError as error:
                self._undecoded += 1
                self._why = self._why or f"at offset {record.offset}: {error}"
        return self._make(
            ConsumerRecord(
                place.topic or "",
                -1 if place.partition is None else place.partition,
                record.offset,
                record.timestamp,
                record.key,
                record.value,
                record.headers,
            )
        )

    def report_undecoded(self) -> None:
        """Print on standard error the number of records that the decoder rejected, with the first reason. Print nothing
        if there were none."""
        if self._undecoded:
            print(f"Records that were not decoded: {self._undecoded}; {self._why}.", file=sys.stderr)

    def _object(self, place: Place, record: Record, key: Any, value: Any, **more: str) -> bytes:
        shown = {
            "topic": place.topic,
            "partition": place.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": key,
            "value": value,
            "headers": [[name, readable(content)] for name, content in record.headers],
            **more,
        }
        return utf_8(compact(shown)) + b"\n"


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else utf_8(text)
