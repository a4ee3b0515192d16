"""Prints the content of a segment of Kafka 0.7, in the style of the later formats.

An offset is the position of a message in the log. Messages in a compressed message have no offsets of their own: a
consumer that stops among them continues at the start of the compressed message, so they are shown with its offset.
"""

from pathlib import Path
from typing import Any

from kafkapy.log.offline.files_07 import Reader07
from kafkapy.record.kafka07 import CorruptMessage, Message, messages_in
from kafkapy.record.records import Record
from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.log.decoders.values import DEFAULT
from kafkapy.tools.log.dump.options import Output
from kafkapy.tools.log.dump.text import codec_name


def dump_07(path: Path, base_offset: int, out: Output) -> None:
    """Print the messages of a segment, in constant memory. Damage that can be skipped is added to the findings. Raises
    ToolError for bytes that are no message."""
    out.text(f"Log starting offset: {base_offset}")
    end = 0
    try:
        with Reader07(path) as log:
            for message in log.messages():
                end = message.end
                _message(path, base_offset + message.position, message, out)
                out.advance(end)
            if log.size > end:
                out.text(f"Found {log.size - end} invalid bytes at the end of {path.name}")
                out.findings.invalid_tail(str(path), end, log.size - end)
    except CorruptMessage as error:
        raise ToolError(f"{path} has no message at position {error.position}: {error}.") from error


def _message(path: Path, offset: int, message: Message, out: Output) -> None:
    valid = message.is_valid
    if not valid:
        out.findings.failed(f"{path} is damaged: the message at position {message.position} has a wrong CRC.")
    out.text(
        f"offset: {offset} nextOffset: {offset + message.size} position: {message.position} size: {message.size}"
        f" magic: {message.magic} compresscodec: {codec_name(message.codec)} crc: {message.crc}"
        f" isvalid: {str(valid).lower()}"
    )
    shown: dict[str, Any] = {
        "type": "message",
        "file": path.name,
        "position": message.position,
        "offset": offset,
        "nextOffset": offset + message.size,
        "size": message.size,
        "magic": message.magic,
        "codec": codec_name(message.codec),
        "crc": message.crc,
        "valid": valid,
    }
    if message.magic == 1:
        shown["attributes"] = message.attributes
    if out.options.deep and valid:
        shown["messages"] = []
        try:
            for inner in messages_in(message):
                _inner(path, offset, inner, shown["messages"], out)
        except CorruptMessage as error:
            out.findings.failed(f"{path} is damaged at position {message.position}: {error}.")
    out.json(shown)


def _inner(path: Path, offset: int, inner: Message, objects: list[dict[str, Any]], out: Output) -> None:
    payload = bytes(inner.payload)
    line = f"| offset: {offset} magic: {inner.magic} payloadSize: {len(payload)}"
    shown: dict[str, Any] = {"magic": inner.magic, "valid": inner.is_valid}
    if out.options.print_data_log:
        record = Record(offset, -1, None, payload, (), -1)
        decoder = out.options.decoder
        try:
            value = (decoder.objects(record) if out.options.as_json else decoder.text(record)).value
        except ValueError as error:
            out.findings.undecoded(str(path), offset, str(error))
            value = (DEFAULT.objects(record) if out.options.as_json else DEFAULT.text(record)).value
        shown["payload"] = value
        line = f"{line if not out.options.skip_record_metadata else '|'} payload: {value}"
    else:
        shown["payloadSize"] = len(payload)
    objects.append(shown)
    out.text(line)
