"""OAUTHBEARER: messages, tokens that are accepted and refused, and the keys of a provider."""

import base64
import hashlib
import hmac
import json
import os
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.security.sasl import http
from kafkapy.security.sasl.client import client_mechanism
from kafkapy.security.sasl.errors import AuthenticationFailed, SaslSettingError
from kafkapy.security.sasl.jaas import OAUTH_MODULE
from kafkapy.security.sasl.jwks import UNKNOWN_KEY_S, KeyFile, KeySet, KeySource, KeyUrl
from kafkapy.security.sasl.jwt_tokens import SignedTokens, TokenRules, UnsecuredTokens
from kafkapy.security.sasl.oauthbearer import OAuthClient, OAuthServer, TokenRefused, first_message
from kafkapy.security.sasl.token_source import RETRY_S, TokenCache, provider_token, unsecured_token
from kafkapy.security.tls.context import server_context
from tests.harness.certificates import Pki, trust_settings

NOW = 1_800_000_000.0
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
RULES = TokenRules()


def jwk(kid: str | None, key: Any, **more: Any) -> dict[str, Any]:
    algorithm = (
        jwt.algorithms.ECAlgorithm if isinstance(key, ec.EllipticCurvePrivateKey) else jwt.algorithms.RSAAlgorithm
    )
    entry: dict[str, Any] = json.loads(algorithm.to_jwk(key.public_key()))
    return {**entry, **({} if kid is None else {"kid": kid}), **more}


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


KEYS = KeySet(key_set(jwk("r", RSA_KEY), jwk("e", EC_KEY, use="sig", alg="ES256")))


def claims(**changes: Any) -> dict[str, Any]:
    made = {"sub": "alice", "iat": NOW - 10, "exp": NOW + 60, **changes}
    return {name: value for name, value in made.items() if value is not None}


def signed(body: dict[str, Any], key: Any = RSA_KEY, algorithm: str = "RS256", kid: str | None = "r") -> str:
    return jwt.encode(body, key, algorithm, headers={} if kid is None else {"kid": kid})


def unsigned(header: dict[str, Any], body: dict[str, Any], signature: bytes = b"") -> str:
    parts = (json.dumps(header).encode(), json.dumps(body).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def check(token: str, rules: TokenRules = RULES, keys: KeySource = KEYS) -> tuple[str, int]:
    return SignedTokens(keys, rules, lambda: NOW).check(token)


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [(RSA_KEY, "RS256", "r"), (RSA_KEY, "PS512", "r"), (EC_KEY, "ES256", "e"), (RSA_KEY, "RS256", None)],
)
def test_a_signed_token_is_accepted(key: Any, algorithm: str, kid: str | None) -> None:
    assert check(signed(claims(), key, algorithm, kid)) == ("alice", int(NOW + 60) * 1000)


def test_a_token_with_critical_extensions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    header = {"alg": "RS256", "kid": "r", "crit": ["x"], "x": 1}
    monkeypatch.setattr(jwt, "get_unverified_header", lambda token: header)  # older PyJWT returns it
    with pytest.raises(TokenRefused, match="critical extensions"):
        check(signed(claims()))


def test_a_header_that_is_nested_too_deeply_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def as_older_versions(token: str) -> dict[str, Any]:
        raise RecursionError("maximum recursion depth exceeded")

    monkeypatch.setattr(jwt, "get_unverified_header", as_older_versions)
    with pytest.raises(TokenRefused, match="not a JSON Web Token"):
        check(signed(claims()))


def test_the_user_may_be_in_another_claim() -> None:
    assert check(signed(claims(sub=None, upn=" bob ")), RULES._replace(sub_claim="upn"))[0] == "bob"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"exp": NOW - 31}, "expired"),
        ({"exp": None}, "exp and iat"),
        ({"iat": None}, "exp and iat"),
        ({"iat": NOW + 31}, "not valid yet"),
        ({"nbf": NOW + 31}, "not valid yet"),
        ({"sub": "alice\ud800"}, "not valid Unicode"),
        ({"exp": "tomorrow"}, "not a time"),
        ({"exp": True}, "not a time"),
        ({"exp": 1e300}, "not a time"),
        ({"sub": None}, "no user"),
        ({"sub": ""}, "no user"),
        ({"sub": " "}, "no user"),
        ({"sub": ["alice"]}, "no user"),
        ({"aud": "kafka"}, "audience"),
    ],
)
def test_a_token_that_says_something_wrong_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(TokenRefused, match=why):
        check(signed(claims(**changes)))


def test_the_clocks_may_differ_by_the_skew() -> None:
    check(signed(claims(exp=NOW - 29)))
    check(signed(claims(iat=NOW + 29)))


def test_audience_and_issuer_are_checked() -> None:
    rules = RULES._replace(audience=("kafka", "other"), issuer="https://id")
    check(signed(claims(aud=["x", "kafka"], iss="https://id")), rules)
    for changes in ({"aud": "x", "iss": "https://id"}, {"iss": "https://id"}, {"aud": "kafka", "iss": "https://id/"}):
        with pytest.raises(TokenRefused):
            check(signed(claims(**changes)), rules)


def test_another_key_under_the_same_name_is_refused() -> None:
    with pytest.raises(TokenRefused, match="signature"):
        check(signed(claims(), OTHER_KEY))


def test_none_and_hmac_over_the_public_key_are_refused() -> None:
    public = RSA_KEY.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    header = {"alg": "HS256", "kid": "r", "typ": "JWT"}
    text = unsigned(header, claims()).rpartition(".")[0]
    confused = f"{text}." + base64.urlsafe_b64encode(
        hmac.new(public, text.encode(), hashlib.sha256).digest()
    ).decode().rstrip("=")
    for token in (confused, unsigned({"alg": "none"}, claims()), unsigned({"alg": "None", "kid": "r"}, claims(), b"x")):
        with pytest.raises(TokenRefused, match="algorithm"):
            check(token)


def test_a_key_is_used_only_for_its_algorithm_and_type() -> None:
    with pytest.raises(TokenRefused, match="no key"):
        check(signed(claims(), RSA_KEY, "RS256", "e"))
    encryption = KeySet(key_set(jwk("r", RSA_KEY, use="enc")))
    with pytest.raises(TokenRefused, match="no key"):
        check(signed(claims()), keys=encryption)
    symmetric = KeySet(key_set({"kty": "oct", "kid": "r", "k": "c2VjcmV0"}))
    with pytest.raises(TokenRefused, match="algorithm"):
        check(jwt.encode(claims(), b"secret" * 6, "HS256", headers={"kid": "r"}), keys=symmetric)


@given(st.text() | st.binary().map(lambda data: base64.urlsafe_b64encode(data).decode()))
def test_any_text_is_refused(text: str) -> None:
    for checker in (SignedTokens(KEYS, RULES, lambda: NOW).check, UnsecuredTokens(RULES, lambda: NOW).check):
        with pytest.raises(TokenRefused):
            checker(text)


def test_a_token_without_a_signature_is_accepted_only_by_the_check_for_them() -> None:
    token = unsigned({"alg": "none"}, claims())
    assert UnsecuredTokens(RULES, lambda: NOW).check(token)[0] == "alice"
    for bad in (signed(claims()), unsigned({"alg": "none"}, claims(exp=NOW - 99)), token + "x"):
        with pytest.raises(TokenRefused):
            UnsecuredTokens(RULES, lambda: NOW).check(bad)


def test_the_messages_of_a_login() -> None:
    token = signed(claims())
    ours = OAuthServer(SignedTokens(KEYS, RULES, lambda: NOW).check)
    client = OAuthClient(lambda: token, {"traceId": "1 2"})
    assert client.initial() == f"n,,\x01auth=Bearer {token}\x01traceId=1 2\x01\x01".encode()
    assert client.respond(ours.respond(client.initial())) is None
    assert ours.complete
    assert (ours.user, ours.expires_at_ms) == ("alice", int(NOW + 60) * 1000)


def test_a_refused_token_is_answered_with_json_and_fails_one_message_later() -> None:
    ours = OAuthServer(SignedTokens(KEYS, RULES, lambda: NOW).check)
    client = OAuthClient(lambda: signed(claims(exp=NOW - 99)))
    challenge = ours.respond(client.initial())
    assert json.loads(challenge) == {"status": "invalid_token"}
    last = client.respond(challenge)
    assert last == b"\x01"
    with pytest.raises(AuthenticationFailed) as refused:
        ours.respond(last)
    assert refused.value.message == '{"status":"invalid_token"}'
    assert refused.value.reason == "the token has expired"
    assert not ours.complete


def test_after_a_refused_token_no_other_token_is_accepted() -> None:
    ours = OAuthServer(SignedTokens(KEYS, RULES, lambda: NOW).check)
    ours.respond(first_message(signed(claims(exp=NOW - 99))))
    with pytest.raises(AuthenticationFailed):
        ours.respond(first_message(signed(claims())))


def test_another_authorization_id_is_refused() -> None:
    token = signed(claims())
    good = OAuthServer(SignedTokens(KEYS, RULES, lambda: NOW).check)
    assert good.respond(first_message(token, "alice")) == b""
    bad = OAuthServer(SignedTokens(KEYS, RULES, lambda: NOW).check)
    with pytest.raises(AuthenticationFailed, match="different from the token"):
        bad.respond(first_message(token, "bob"))
    assert not bad.complete


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer T\x01",
        b"n,,\x01auth=Basic T\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer T T\x01\x01",
        b"n,,\x01auth=Bearer T\x01auth=Bearer T\x01\x01",
        b"n,,\x01auth=Bearer T\x01\x01\x01",
        b"n,,\x01x=1\x01\x01",
        b"n,b=c,\x01auth=Bearer T\x01\x01",
        b"y,,\x01auth=Bearer T\x01\x01",
        b"n,a=,\x01auth=Bearer T\x01\x01",
        b"n,a==2X,\x01auth=Bearer T\x01\x01",
        b"\xff",
    ],
)
def test_a_malformed_message_is_refused_at_once(message: bytes) -> None:
    def never(token: str) -> Any:
        raise AssertionError("the token was looked at")

    with pytest.raises(AuthenticationFailed):
        OAuthServer(never).respond(message)


def test_a_key_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(key_set(jwk("r", OTHER_KEY)))
    keys = KeyFile(path)
    with pytest.raises(TokenRefused):
        check(signed(claims()), keys=keys)
    path.write_bytes(key_set(jwk("r", RSA_KEY)))
    os.utime(path, ns=(1, 1))
    assert check(signed(claims()), keys=keys)[0] == "alice"
    path.write_bytes(b"half of the ne")  # the old keys stay
    os.utime(path, ns=(2, 2))
    assert check(signed(claims()), keys=keys)[0] == "alice"


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"keys": 1}', b"[" * 100_000])
def test_a_key_file_that_is_none_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(data)
    with pytest.raises(ValueError, match="JSON Web Key Set"):
        KeyFile(path)


def test_broken_keys_are_ignored() -> None:
    keys = KeySet(key_set({"kty": "RSA", "kid": "r"}, {"kty": "EC", "crv": 1}, {"kid": "x"}, jwk("r", RSA_KEY)))
    assert len(keys.find("r", "RS256")) == 1


class Provider:
    """The URL of a provider, without a server. It counts the reads, and fails while `keys` is None."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.keys: tuple[dict[str, Any], ...] | None = keys
        self.reads = 0
        self.now = 0.0
        self.url = KeyUrl(self.fetch, refresh_s=3600, monotonic=lambda: self.now)

    def fetch(self) -> bytes:
        self.reads += 1
        if self.keys is None:
            raise OSError("the provider is away")
        return key_set(*self.keys)


def test_keys_are_read_at_the_first_token_and_then_when_they_are_old() -> None:
    provider = Provider(jwk("r", RSA_KEY))
    for _ in range(3):
        check(signed(claims()), keys=provider.url)
    assert provider.reads == 1
    provider.now = 3601
    check(signed(claims()), keys=provider.url)
    assert provider.reads == 2


def test_a_read_that_fails_slowly_is_not_followed_by_another_at_once() -> None:
    provider = Provider(jwk("r", RSA_KEY))
    check(signed(claims()), keys=provider.url)
    provider.now = UNKNOWN_KEY_S

    def fails_slowly() -> bytes:
        provider.reads += 1
        provider.now += 2 * UNKNOWN_KEY_S
        raise OSError("the provider does not answer")

    provider.url = KeyUrl(fails_slowly, monotonic=lambda: provider.now)
    for _ in range(2):
        with pytest.raises(TokenRefused):
            check(signed(claims(), kid="unknown"), keys=provider.url)
    assert provider.reads == 2  # the first with success


def test_a_rotated_key_is_found_at_once() -> None:
    provider = Provider(jwk("old", OTHER_KEY))
    check(signed(claims(), OTHER_KEY, kid="old"), keys=provider.url)
    provider.keys = (jwk("r", RSA_KEY),)
    provider.now = UNKNOWN_KEY_S
    assert check(signed(claims()), keys=provider.url)[0] == "alice"
    assert provider.reads == 2


def test_unknown_keys_cause_one_read_in_a_while() -> None:
    provider = Provider(jwk("r", RSA_KEY))
    check(signed(claims()), keys=provider.url)
    for count in range(100):
        provider.now += UNKNOWN_KEY_S / 40
        with pytest.raises(TokenRefused):
            check(signed(claims(), kid=f"unknown-{count}"), keys=provider.url)
    assert provider.reads == 3
    provider.now += UNKNOWN_KEY_S
    with pytest.raises(TokenRefused):
        check(signed(claims(), kid="x" * 1001), keys=provider.url)
    assert provider.reads == 3


def test_known_keys_are_used_while_the_provider_is_away() -> None:
    provider = Provider(jwk("r", RSA_KEY))
    check(signed(claims()), keys=provider.url)
    provider.keys, provider.now = None, 4000
    for _ in range(3):
        check(signed(claims()), keys=provider.url)
    assert provider.reads == 2  # the next read is after the backoff


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.headers["Authorization"], body))  # type: ignore[attr-defined]
        self._answer()

    def _answer(self) -> None:
        status, data = self.server.answers[self.path]  # type: ignore[attr-defined]
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/keys")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def web() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.asked = []
    server.answers = {
        "/keys": (200, b"{}"),
        "/elsewhere": (302, b""),
        "/error": (500, b"secret"),
        "/large": (200, bytes(http.LARGEST_ANSWER + 1)),
        "/token": (200, json.dumps({"access_token": "T", "expires_in": 100}).encode()),
        "/none": (200, b"{}"),
    }
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_url_is_read_without_redirects_or_large_answers(web: Any) -> None:
    assert http.request(f"{web.url}/keys") == b"{}"
    for path in ("elsewhere", "error", "large"):
        with pytest.raises(OSError, match="answered") as failed:
            http.request(f"{web.url}/{path}")
        assert "secret" not in str(failed.value)
    with pytest.raises(OSError, match="no answer"):
        http.request("http://127.0.0.1:1/")


def test_an_answer_that_comes_byte_by_byte_is_given_up(web: Any) -> None:
    class Slow(Answers):
        def _answer(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "200")
            self.end_headers()
            try:
                for _ in range(200):
                    self.wfile.write(b" ")
                    time.sleep(0.02)
            except OSError:
                pass  # the client has given up

    web.RequestHandlerClass = Slow
    with pytest.raises(OSError, match="too slowly"):
        http.request(f"{web.url}/keys", timeout_s=0.5)


def test_a_token_of_a_provider_is_fetched_once_for_most_of_its_lifetime(web: Any) -> None:
    clock = [time.time()]
    cache = TokenCache(provider_token(f"{web.url}/token", "me", "s:e", "a b"), time_s=lambda: clock[0])
    assert {cache.get() for _ in range(3)} == {"T"}
    assert web.asked == [("Basic " + base64.b64encode(b"me:s:e").decode(), b"grant_type=client_credentials&scope=a+b")]
    clock[0] += 85
    cache.get()
    assert len(web.asked) == 2


def test_a_token_is_used_until_it_expires_while_the_provider_is_away() -> None:
    clock, answers = [0.0], ["first", None, "second", None]

    def fetch() -> tuple[str, float]:
        token = answers.pop(0)
        if token is None:
            raise AuthenticationFailed("the provider is away")
        return token, clock[0] + 100

    cache = TokenCache(fetch, time_s=lambda: clock[0])
    assert cache.get() == "first"
    clock[0] = 81
    assert (cache.get(), cache.get()) == ("first", "first")
    clock[0] += RETRY_S
    assert cache.get() == "second"
    clock[0] += 101
    with pytest.raises(AuthenticationFailed, match="away"):
        cache.get()
    assert not answers


def test_the_authority_of_a_provider_of_tokens_is_in_the_jaas_line(web: Any, tmp_path: Path) -> None:
    pki = Pki()
    context = server_context(pki.server.settings(tmp_path))
    web.socket = context.wrap_socket(web.socket, server_side=True)
    trust = " ".join(f'{name}="{value}"' for name, value in trust_settings(tmp_path, [pki.authority]).items())

    def first_message_with(options: str) -> bytes:
        settings = {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": f"https://127.0.0.1:{web.server_port}/token",
            "sasl.jaas.config": f'{OAUTH_MODULE} required clientId="me" clientSecret="hidden" {options};',
        }
        return client_mechanism(settings, "localhost").initial()

    assert b"auth=Bearer T" in first_message_with(trust)
    with pytest.raises(AuthenticationFailed, match="certificate verify failed"):
        first_message_with("")
    with pytest.raises(SaslSettingError, match=r"ssl\.truststore\.location") as refused:
        first_message_with(f'ssl.truststore.location="{tmp_path / "none.pem"}"')
    assert "hidden" not in str(refused.value)


def test_no_token_is_an_authentication_failure(web: Any) -> None:
    for path in ("none", "error"):
        with pytest.raises(AuthenticationFailed, match="no token") as failed:
            provider_token(f"{web.url}/{path}", "me", "hidden", "")()
        assert "hidden" not in str(failed.value)


def test_a_client_may_make_tokens_without_a_signature() -> None:
    make: Callable[[], tuple[str, float]] = unsecured_token({"sub": "alice"}, 60, lambda: NOW)
    assert UnsecuredTokens(RULES, lambda: NOW).check(make()[0]) == ("alice", int(NOW + 60) * 1000)
