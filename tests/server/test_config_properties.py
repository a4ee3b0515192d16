"""Properties files are read as Java reads them."""

from pathlib import Path

import pytest

from kafkapy.server.config.properties import PropertiesError, load_properties, parse_properties


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\t=\tb", {"a": "b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("a==b", {"a": "=b"}),
        ("a = = b", {"a": "= b"}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("  \f a=b", {"a": "b"}),
        ("# a=b\n! c=d\n  # e=f\n\n \t\ng=h#i", {"g": "h#i"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=b\\\n    c", {"a": "bc"}),
        ("a=b\\\r\n\tc\\\n d", {"a": "bcd"}),
        ("a=b\\", {"a": "b"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\n# c=d", {"a": "b# c=d"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("# no continuation \\\na=b", {"a": "b"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\:b c", {"a:b": "c"}),
        ("a\\ b=c", {"a b": "c"}),
        ("\\#a=b", {"#a": "b"}),
        ("a=\\t\\n\\r\\f\\\\\\q", {"a": "\t\n\r\f\\q"}),
        ("a=\\u0041\\u00e9", {"a": "Aé"}),
        ("a=\\uD83D\\uDE00", {"a": "😀"}),
        ("a=\\uD83D", {"a": "\ufffd"}),
        ("\\u0061=1", {"a": "1"}),
        ("a=é😀", {"a": "é😀"}),
        ("a=C:\\\\dir", {"a": "C:\\dir"}),
        ("", {}),
    ],
)
def test_text_is_read_as_java_reads_it(text: str, settings: dict[str, str]) -> None:
    assert parse_properties(text) == settings


@pytest.mark.parametrize("text", ["\nx=1\na=\\u12", "\n\na=\\u12g4", "\n\na=\\u"])
def test_a_broken_escape_is_named_with_its_line(text: str) -> None:
    with pytest.raises(PropertiesError, match="line 3"):
        parse_properties(text)


@pytest.mark.parametrize(
    ("data", "value"),
    [("a=ü".encode(), "ü"), (b"a=\xfc", "ü"), (b"\xef\xbb\xbfa=x", "x")],
)
def test_a_file_is_utf8_or_else_latin1(tmp_path: Path, data: bytes, value: str) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes(data)
    assert load_properties(path) == {"a": value}


def test_an_error_in_a_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("a=\\u1")
    with pytest.raises(PropertiesError, match=r"server\.properties: line 1"):
        load_properties(path)
