"""Opens PKCS12 files, with the library cryptography."""

from typing import NamedTuple

from kafkapy.extras import how_to_install
from kafkapy.security.tls.certificates import Certificate
from kafkapy.security.tls.errors import StoreError


class Other(NamedTuple):
    """A certificate without a key, in DER, and the name (alias) that it has in the file."""

    encoded: bytes
    alias: str | None


class Opened(NamedTuple):
    """The content of a file: the key in PEM and its certificate in DER, if there is a key, and other certificates."""

    key: str | None
    certificate: bytes | None
    others: list[Other]

    def trusted(self) -> list[bytes]:
        """Return the certificates to trust.

        Java trusts the certificates that have an attribute of its own, and the one of a key, but not the chain above
        the key. cryptography does not show attributes. In a file with a key, the alias distinguishes certificates of
        the chain from trusted ones: Java gives them their subject as alias, and openssl none.
        """
        if self.certificate is None:
            return [one.encoded for one in self.others]
        return [self.certificate, *(one.encoded for one in self.others if not _is_of_chain(one))]


def _is_of_chain(one: Other) -> bool:
    return one.alias is None or _squeezed(one.alias) == _squeezed(Certificate.parse(one.encoded).subject)


def _squeezed(name: str) -> str:
    return "".join(name.split()).lower()


def opened(setting: str, path: str, data: bytes, password: str | None) -> Opened:
    """Return the content of the PKCS12 file at `path`, whose bytes are `data`.

    Raises StoreError if cryptography is missing, for a wrong password, and for a damaged file. `setting` names the file
    in the error.
    """
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.hazmat.primitives.serialization import pkcs12 as library
    except ImportError:
        raise StoreError(
            setting,
            f"{path} is PKCS12, which needs the library cryptography: {how_to_install('security')}, or use PEM",
        ) from None
    password_setting = setting.replace(".location", ".password")
    try:
        found = library.load_pkcs12(data, None if password is None else password.encode())
    except UnsupportedAlgorithm as error:
        raise StoreError(setting, f"{path} is encrypted in a way that is not supported: {error}") from None
    except ValueError:
        reason = "wrong" if password is not None else "not set"
        raise StoreError(password_setting, f"{reason} for {path}, or the file is damaged") from None
    key = None
    if found.key is not None:
        key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return Opened(
        key,
        None if found.cert is None else found.cert.certificate.public_bytes(Encoding.DER),
        [
            Other(
                one.certificate.public_bytes(Encoding.DER),
                None if one.friendly_name is None else one.friendly_name.decode("utf-8", "replace"),
            )
            for one in found.additional_certs
        ],
    )
