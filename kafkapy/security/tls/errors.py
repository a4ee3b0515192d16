"""The error for TLS settings that cannot be used."""


class StoreError(Exception):
    """Raised for a key store, a trust store or another TLS setting that cannot be used.

    `setting` is its name without a listener's prefix; `reason` says what is wrong and what to do, and names the file.
    Neither has a password or a key in it.
    """

    def __init__(self, setting: str, reason: str) -> None:
        super().__init__(f"{setting}: {reason}")
        self.setting = setting
        self.reason = reason


class NoPrivateKey(StoreError):
    """Raised for a key store without a private key, which may be a trust store."""
