"""What counts as text is what Python decodes."""

from hypothesis import example, given
from hypothesis import strategies as st

from kafkapy._ext.utf8 import is_valid

# Bytes that begin or go on with a character, or only look so, at the borders of what is allowed.
EDGES = b"a\x7f\x80\x8f\x90\x9f\xa0\xbf\xc1\xc2\xdf\xe0\xe1\xec\xed\xee\xef\xf0\xf1\xf3\xf4\xf5\xff"


@given(st.text().map(str.encode) | st.binary() | st.lists(st.sampled_from(list(EDGES))).map(bytes))
@example(b"\xed\xa0\x80")
@example(b"\xf4\x8f\xbf\xbf" * 3)
@example(b"eight ok\xe2\x82")
def test_text_is_what_python_decodes(data):
    try:
        data.decode()
        wanted = True
    except UnicodeDecodeError:
        wanted = False
    assert is_valid(data) is wanted
