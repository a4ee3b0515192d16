"""How to install the optional dependencies, which pyproject.toml lists as extras."""


def how_to_install(extra: str) -> str:
    """Return the end of a sentence that tells a person how to install the extra `extra`.

    The text names a checkout, not the package index: the index has an unrelated project under the name kafkapy, and
    kafkapy-broker, the name of this distribution, is not published yet.
    """
    return f"run pip install -e '.[{extra}]' in a checkout of kafkapy"
