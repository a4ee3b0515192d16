"""JAAS lines are read as Java reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.security.sasl.errors import SaslSettingError
from kafkapy.security.sasl.jaas import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE, parse_jaas

SETTING = "listener.name.a.plain.sasl.jaas.config"


def options_of(line: str) -> dict[str, str]:
    return dict(parse_jaas(SETTING, line).options)


def test_module_and_options_are_found() -> None:
    entry = parse_jaas(SETTING, f'{SCRAM_MODULE} required username="alice" password=secret-1_$ ;')
    assert entry == (SCRAM_MODULE, {"username": "alice", "password": "secret-1_$"})


def test_quotes_escapes_and_comments_are_those_of_java() -> None:
    line = (
        f"{PLAIN_MODULE} /* why */ Required // the rest\n"
        r"""user_a="it's \"1\"" user_b='\\\t\101\7x\q' // user_c="none"
        "user_d"="" 'user_ü'="ü; =";"""
    )
    assert options_of(line) == {
        "user_a": 'it\'s "1"',
        "user_b": "\\\tA\x07xq",
        "user_d": "",
        "user_ü": "ü; =",
    }


def test_a_single_slash_begins_a_comment() -> None:
    assert options_of(f"{PLAIN_MODULE} required user_a=b / user_c=d\n;") == {"user_a": "b"}


def test_the_last_of_two_equal_options_wins() -> None:
    assert options_of(f"{PLAIN_MODULE} required user_a=b user_a=c;") == {"user_a": "c"}


@pytest.mark.parametrize("module", [PLAIN_MODULE, SCRAM_MODULE, OAUTH_MODULE])
def test_a_module_without_options_is_allowed(module: str) -> None:
    assert parse_jaas(SETTING, f"{module} OPTIONAL;") == (module, {})


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("", "is empty"),
        ("// nothing", "is empty"),
        ("com.sun.security.auth.module.JndiLoginModule required user.provider.url=x;", "login module other than"),
        ("com.sun.security.auth.module.LdapLoginModule required;", "login module other than"),
        (f"{PLAIN_MODULE}", "required"),
        (f"{PLAIN_MODULE} must user_a=b;", "required"),
        (f"{PLAIN_MODULE} required user_a=secret", "semicolon"),
        (f'{PLAIN_MODULE} required user_a="secret;', "semicolon"),
        (f"{PLAIN_MODULE} required user_a=;", "without a value"),
        (f"{PLAIN_MODULE} required user_a secret;", "without a value"),
        (f"{PLAIN_MODULE} required user_a=1secret;", "quoted"),
        (f"{PLAIN_MODULE} required user_a=-1;", "quoted"),
        (f"{PLAIN_MODULE} required 1=secret;", "KEY=VALUE"),
        (f"{PLAIN_MODULE} required user_a=b; {SCRAM_MODULE} required;", "more than one"),
    ],
)
def test_a_malformed_line_is_refused_without_showing_it(line: str, rule: str) -> None:
    with pytest.raises(SaslSettingError, match=rule) as refused:
        parse_jaas(SETTING, line)
    assert str(refused.value).startswith(SETTING)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "line",
    [
        f'{PLAIN_MODULE} required user_a="secret\\"" user_b=\'secret\';',
        f"/* x */ {SCRAM_MODULE} optional username=a password=secret // end\n;",
    ],
)
def test_a_line_that_ends_in_the_middle_is_refused_at_every_place(line: str) -> None:
    parse_jaas(SETTING, line)
    for end in range(len(line)):
        with pytest.raises(SaslSettingError) as refused:
            parse_jaas(SETTING, line[:end])
        assert "secret" not in str(refused.value)


@given(st.text(), st.dictionaries(st.from_regex(r"[a-z_]{1,10}", fullmatch=True), st.text(), max_size=4))
def test_any_quoted_value_comes_back(comment: str, values: dict[str, str]) -> None:
    def quoted(text: str) -> str:
        return "".join(f"\\{ord(char):03o}" if char in '\n\r"\\' else char for char in text)

    line = f"/*{comment.replace('*', '')}*/{PLAIN_MODULE} required "
    line += " ".join(f'{name}="{quoted(value)}"' for name, value in values.items()) + ";"
    assert options_of(line) == values


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    for line in (text, f"{PLAIN_MODULE} required {text}"):
        try:
            parse_jaas(SETTING, line)
        except SaslSettingError:
            pass
