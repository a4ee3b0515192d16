"""Header names are text if Python decodes them."""

from hypothesis import example, given
from hypothesis import strategies as st

from kafkapy._ext import batch
from kafkapy._ext.columns import ColumnBuilder
from kafkapy._ext.record_writer import RecordsEncoder

# Bytes that begin or continue a character, or nearly do: the limits of each range and their neighbours.
EDGES = b"a\x7f\x80\x8f\x90\x9f\xa0\xbf\xc1\xc2\xdf\xe0\xe1\xec\xed\xee\xef\xf0\xf1\xf3\xf4\xf5\xff"


def column_of(name: bytes) -> bytes:
    """Return the only header name in a column of headers."""
    encoder = RecordsEncoder()
    encoder.append(0, None, None, [(name, None)])
    builder = ColumnBuilder(None, ["headers"])
    assert list(builder.feed(batch.assemble(encoder.payload(), count=1, base_timestamp=0))) == []
    return bytes(builder.finish().columns["headers"].names.data)


@given(st.text().map(str.encode) | st.binary() | st.lists(st.sampled_from(list(EDGES))).map(bytes))
@example(b"\xed\xa0\x80")
@example(b"\xf4\x8f\xbf\xbf" * 3)
@example(b"eight ok\xe2\x82")
def test_valid_utf_8_is_kept_and_invalid_bytes_become_replacement_characters(name):
    try:
        name.decode()
        valid = True
    except UnicodeDecodeError:
        valid = False
    found = column_of(name)
    assert (found == name) is valid
    assert ("\ufffd" in found.decode()) or valid
