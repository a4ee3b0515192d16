"""Values of TLS settings: Kafka's unprefixed names, values as text or, for lists, also as lists."""

from collections.abc import Mapping
from typing import Any

from kafkapy.security.tls.errors import StoreError

# Java's classes, providers and algorithms whose behaviour is built in here.
_BUILT_IN = {
    "ssl.engine.factory.class": ("org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",),
    "ssl.keymanager.algorithm": ("SunX509", "NewSunX509", "PKIX"),
    "ssl.provider": ("SunJSSE",),
    "ssl.secure.random.implementation": (
        "DRBG",
        "NativePRNG",
        "NativePRNGBlocking",
        "NativePRNGNonBlocking",
        "SHA1PRNG",
    ),
    "ssl.trustmanager.algorithm": ("PKIX", "SunPKIX", "SunX509", "X509"),
    "security.providers": (),
}
STORE_TYPES = ("JKS", "PKCS12", "PEM")


def text(settings: Mapping[str, Any], name: str) -> str | None:
    """Return the value of a setting as text, None if it is not set or empty."""
    value = settings.get(name)
    return str(value) if value else None


def words(settings: Mapping[str, Any], name: str) -> list[str]:
    """Return the values of a list, which may be a list or text with commas."""
    value = settings.get(name) or ()
    found = value.split(",") if isinstance(value, str) else value
    return [word for word in (str(one).strip() for one in found) if word]


def flag(settings: Mapping[str, Any], name: str) -> bool:
    """Return a boolean setting, false if it is not set."""
    return str(settings.get(name) or "false").lower() == "true"


def store_type(settings: Mapping[str, Any], name: str) -> str:
    """Return the type that `ssl.keystore.type` or `ssl.truststore.type` names. A file is recognised by its content,
    whatever this type. Raises StoreError for a type that no file here can have."""
    kind = (text(settings, name) or "JKS").upper()
    if kind not in STORE_TYPES:
        raise StoreError(name, f"{settings[name]!r} is not supported: use PKCS12 or PEM")
    return kind


def check_built_in(settings: Mapping[str, Any]) -> None:
    """Raise StoreError for a setting that names a class, a provider or an algorithm of Java that is not what this
    program uses anyway. To ignore it would weaken what the user asked for."""
    for name, known in _BUILT_IN.items():
        value = text(settings, name)
        if value is not None and value.lower() not in (one.lower() for one in known):
            choice = f"remove it, or use {' or '.join(known)}" if known else "remove it"
            raise StoreError(name, f"{value!r} would need Java: {choice}")
