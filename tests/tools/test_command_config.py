"""--command-config: the TLS and login settings of commands that talk to brokers."""

import typer

from kafkapy.client import Cluster
from kafkapy.tools.cli import app_for
from kafkapy.tools.common import options
from kafkapy.tools.main import main

LOGIN = "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=u\nsasl.password=secret-word\n"


def commands(group, path=()):
    """Yield the path and the command of each command below a group."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def test_every_command_that_takes_a_bootstrap_server_takes_a_file_with_settings():
    group = typer.main.get_command(app_for([]))
    found = {path: {option for one in command.params for option in one.opts} for path, command in commands(group)}
    asking = {path for path, its in found.items() if "--bootstrap-server" in its}
    assert len(asking) > 20
    assert [path for path in asking if "--command-config" not in found[path]] == []


def used_security(monkeypatch):
    """Have the Security of the next command's cluster added to the list that is returned."""
    used = []

    def cluster(servers, *, security):
        used.append(security)
        return Cluster("127.0.0.1:1")

    monkeypatch.setattr(options, "Cluster", cluster)
    return used


def test_the_file_is_an_option_or_in_the_environment(tmp_path, monkeypatch, capsys):
    file = tmp_path / "client.properties"
    file.write_text(LOGIN + "retries=3\n")
    used = used_security(monkeypatch)
    assert main(["cluster", "--command-config", str(file)]) == 1
    monkeypatch.setenv("KAFKAPY_COMMAND_CONFIG", str(file))
    assert main(["topics", "list"]) == 1
    assert [one.protocol for one in used] == ["SASL_SSL"] * 2
    assert "secret-word" not in capsys.readouterr().err


def test_a_file_or_setting_that_cannot_be_used_is_a_wrong_call_that_names_it(tmp_path, capsys):
    file = tmp_path / "client.properties"
    assert main(["cluster", "--command-config", str(file)]) == 2
    assert f"--command-config {file}: No such file or directory" in capsys.readouterr().err
    file.write_text(LOGIN + "ssl.key.location=x\n")
    assert main(["cluster", "--command-config", str(file)]) == 2
    said = capsys.readouterr().err
    assert f"{file}: ssl.key.location needs ssl.certificate.location too" in said
    assert "secret-word" not in said
