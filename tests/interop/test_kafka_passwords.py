"""Apache Kafka 3.9.1 can decrypt the dynamic passwords that kafkapy has encrypted."""

import subprocess
from pathlib import Path

import pytest

from kafkapy.security.passwords import CIPHERS, PasswordEncoder
from tests.harness import brokers, toolchain

pytestmark = pytest.mark.other_runtime

PROGRAM = Path(__file__).parents[1] / "data" / "passwords" / "Encode.java"


def test_kafka_decrypts_our_passwords() -> None:
    passwords = {cipher: f"geheim-{number}" for number, cipher in enumerate(CIPHERS)}
    lines = [
        f"secret {cipher} 128 4096 - - {PasswordEncoder('secret', cipher=cipher).encode(password)}\n"
        for cipher, password in passwords.items()
    ]
    classpath = toolchain.maven_classpath(brokers.KAFKA_POM, brokers.KAFKA_VERSION)
    command = [toolchain.find("java"), "-Xmx128m", "-cp", classpath, str(PROGRAM)]
    done = subprocess.run(command, input="".join(lines), capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == list(passwords.values())
