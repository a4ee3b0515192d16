"""The decoder options that all commands have that show keys and values of records, and the choice of the decoder."""

from typing import Annotated

import typer

from kafkapy.tools.common.errors import CallError
from kafkapy.tools.log.decoders.values import DEFAULT, UTF_8, ContentDecoder, Decoder, content_of

_KINDS = "utf-8|json|hex|MODULE:FUNCTION"

OffsetsDecoding = Annotated[bool, typer.Option("--offsets-decoder", help="Show the records of __consumer_offsets.")]
TransactionsDecoding = Annotated[
    bool, typer.Option("--transaction-log-decoder", help="Show the records of __transaction_state.")
]
KeyDecoding = Annotated[str | None, typer.Option("--key-decoder", metavar=_KINDS, help="How to show keys.")]
ValueDecoding = Annotated[str | None, typer.Option("--value-decoder", metavar=_KINDS, help="How to show values.")]


def decoder_of(offsets: bool, transactions: bool, key: str | None, value: str | None) -> Decoder:
    """Return the decoder for the values of the four decoder options. Raises CallError for options that exclude each
    other."""
    if offsets + transactions + (key is not None or value is not None) > 1:
        raise CallError(
            "use one of --offsets-decoder, --transaction-log-decoder and --key-decoder with --value-decoder, not two"
        )
    if offsets or transactions:
        from kafkapy.tools.log.decoders.coordinator_records import OffsetsDecoder, TransactionsDecoder

        return OffsetsDecoder() if offsets else TransactionsDecoder()
    if key is None and value is None:
        return DEFAULT
    return ContentDecoder(
        content_of("--key-decoder", key) if key is not None else UTF_8,
        content_of("--value-decoder", value) if value is not None else UTF_8,
    )
