"""The schema compiler: the compiled schemas, and the errors for invalid texts."""

import subprocess
import sys

import pytest

from kafkapy.protocol.compiler import NEW_DEFAULT, Field, SchemaError, Versions, parse, parse_head, parse_record
from kafkapy.protocol.message import make_class

GOOD = """\
# a comment line
api 3 Metadata    versions 1-12    flexible 9+      # and one behind

request
  topics      []       nullable 2+
    name      string           nullable 10-11    default null
    deeper    struct   4-6
      x       int8             default 0x7f
  tagged      []int32  9+      tag 1   ignorable

response
  only_once   bool     3       default true
"""


def test_a_text_becomes_fields() -> None:
    schema = parse(GOOD, "good.schema")
    assert schema.head == (3, "Metadata", Versions(1, 12), 9)
    assert parse_head(GOOD, "good.schema") == schema.head
    deeper = Field("deeper", "struct", False, Versions(4, 6), None, NEW_DEFAULT, None, False, ())
    x = Field("x", "int8", False, Versions(4, 6), None, 127, None, False, ())
    name = Field("name", "string", False, Versions(1, 12), Versions(10, 11), None, None, False, ())
    assert schema.request == (
        Field("topics", "struct", True, Versions(1, 12), Versions(2, 12), NEW_DEFAULT, None, False, (
            name, deeper._replace(fields=(x,)),
        )),
        Field("tagged", "int32", True, Versions(9, 12), None, NEW_DEFAULT, 1, True, ()),
    )  # fmt: skip
    assert schema.response == (Field("only_once", "bool", False, Versions(3, 3), None, True, None, False, ()),)


def test_an_api_that_is_never_flexible() -> None:
    assert parse("api 17 SaslHandshake versions 0-1 flexible none\nrequest\nresponse\n", "s").head.flexible == 2


HEAD = "api 3 Metadata versions 1-12 flexible 9+\n"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "bad:1: the schema is empty"),
        ("# nothing\n", "bad:1: the schema is empty"),
        ("\nrequest\n", "bad:2: the first line must read"),
        ("  api 3 Metadata versions 1-12 flexible 9+\n", "bad:1: the first line must read"),
        ("api x Metadata versions 1-12 flexible 9+\n", "bad:1: x is not an API key"),
        ("api 3 Metadata versions 12-1 flexible 9+\n", "bad:1: versions 12-1 are not within"),
        ("api 3 Metadata versions 1+ flexible 9+\n", "bad:1: versions 1+ must end somewhere"),
        ("api 3 Metadata versions 1-12 flexible 13+\n", "bad:1: versions 13+ are not within 1-12"),
        (HEAD + "response\nrequest\n", "bad:2: after the api line there must be a line `request`"),
        (HEAD + "request\n", "bad:2: after the api line there must be a line `request`"),
        (HEAD, "bad:1: after the api line there must be a line `request`"),
        (HEAD + "  x int8\nrequest\nresponse\n", "bad:2: only `request` may follow the api line"),
        (HEAD + "request\n   x int8\nresponse\n", "bad:3: indent by two spaces"),
        (HEAD + "request\n\tx int8\nresponse\n", "bad:3: indent by two spaces"),
        (HEAD + "request\n    x int8\nresponse\n", "bad:3: indented by 4 spaces where 2 are right"),
        (HEAD + "request\n  x\nresponse\n", "bad:3: a field needs a name and a type"),
        (HEAD + "request\n  CamelCase int8\nresponse\n", "bad:3: CamelCase is not a name in snake case"),
        (HEAD + "request\n  x int12\nresponse\n", "bad:3: unknown type int12"),
        (HEAD + "request\n  x []int12\nresponse\n", "bad:3: unknown type []int12"),
        (HEAD + "request\n  x int8 3-\nresponse\n", "bad:3: 3- is not a range of versions"),
        (HEAD + "request\n  x int8 3-5+\nresponse\n", "bad:3: 3-5+ is not a range of versions"),
        (HEAD + "request\n  x int8 0-4\nresponse\n", "bad:3: versions 0-4 are not within 1-12"),
        (HEAD + "request\n  s struct 3-5\n    x int8 4+ nullable\nresponse\n", "bad:4: a field of type int8"),
        (HEAD + "request\n  s struct 3-5\n    x int8 4-6\nresponse\n", "bad:4: versions 4-6 are not within 3-5"),
        (HEAD + "request\n  x string nullable 0+\nresponse\n", "bad:3: versions 0+ are not within 1-12"),
        (HEAD + "request\n  x string default null\nresponse\n", "bad:3: `default null` must come after `nullable`"),
        (
            HEAD + "request\n  x int8 default 128\nresponse\n",
            "bad:3: 128 cannot be the default of a field of type int8",
        ),
        (HEAD + "request\n  x int8 default one\nresponse\n", "bad:3: one cannot be the default"),
        (HEAD + "request\n  x bool default 1\nresponse\n", "bad:3: 1 cannot be the default"),
        (
            HEAD + "request\n  x []int8 default 1\nresponse\n",
            "bad:3: 1 cannot be the default of a field of type []int8",
        ),
        (HEAD + "request\n  x int8 tag 0\nresponse\n", "bad:3: a tagged field cannot exist before the first flexible"),
        (HEAD + "request\n  x int8 9+ tag\nresponse\n", "bad:3: tag is unexpected here"),
        (HEAD + "request\n  x int8 nulable\nresponse\n", "bad:3: nulable is unexpected here"),
        (HEAD + "request\n  x int8\n  x int8\nresponse\n", "bad:4: a second field x in one struct"),
        (HEAD + "request\n  x int8 9+ tag 1\n  y int8 9+ tag 1\nresponse\n", "bad:4: a second field with tag 1"),
        (HEAD + "request\n  x []\nresponse\n", "bad:3: a struct needs fields"),
        (HEAD + "request\n  x int8\n    y int8\nresponse\n", "bad:4: int8 x has no fields"),
    ],
)
def test_errors_name_the_line(text: str, error: str) -> None:
    with pytest.raises(SchemaError) as refused:
        parse(text, "bad")
    assert str(refused.value).startswith(error)


def test_messages_have_defaults_equality_and_a_repr() -> None:
    schema = parse(GOOD, "good.schema")
    request = make_class("MetadataRequest", schema.request, __name__)
    assert request() == request(topics=[], tagged=[])
    assert request().topics is not request().topics
    topic = request.Topics()
    assert (topic.name, topic.deeper) == (None, request.Topics.Deeper(x=127))
    assert topic.deeper is not request.Topics().deeper
    assert request(topics=[topic]) != request()
    assert request() != "a text"
    assert repr(topic) == "MetadataRequest.Topics(name=None, deeper=MetadataRequest.Topics.Deeper(x=127))"
    with pytest.raises(TypeError):
        request(topic=[])
    with pytest.raises(AttributeError):
        request().topic = []
    with pytest.raises(TypeError):
        hash(request())


def test_a_record_is_one_message() -> None:
    head, (name, at) = parse_record("record Key  versions 0-4  flexible 4+\n  name  string\n  at  int64  1\n", "key")
    assert head == (-1, "Key", Versions(0, 4), 4)
    assert (name.name, at.versions) == ("name", Versions(1, 1))


@pytest.mark.parametrize("text", ["", "record Key versions 0-4\n", "api 3 Key versions 0-4 flexible none\n"])
def test_an_invalid_record_schema_is_refused(text: str) -> None:
    with pytest.raises(SchemaError, match=r"^key:1: "):
        parse_record(text, "key")


def test_importing_the_registry_compiles_nothing_and_loads_nothing_heavy() -> None:
    """A broker should need at most 0.3 s from its start to its first acknowledgement."""
    program = (
        "import sys; from kafkapy.protocol import apis, headers, api_versions\n"
        "print(sum('_schema' in vars(api) for api in apis.APIS.values()))\n"
        "print(sorted({'asyncio', 'inspect', 'dataclasses', 'ssl', 'typer', 'rich'} & set(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert output == "0\n[]\n"
