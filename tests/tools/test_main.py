"""The command as a whole: exit codes, one sentence for each error, and imported modules."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kafkapy.record.batch import build
from kafkapy.tools import main as main_module
from kafkapy.tools.cli import COMMANDS
from kafkapy.tools.log.cli import COMMANDS as LOG_COMMANDS
from kafkapy.version import VERSION


def run(*words, code=None, **env):
    """Run the command in a process; return its output and its exit code."""
    command = [sys.executable, "-m", "kafkapy", *words] if code is None else [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env}, check=False)


def test_a_process_says_its_version_and_exits_0():
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"kafkapy {VERSION}\n", "")


def test_a_process_with_wrong_arguments_exits_2_with_a_sentence():
    done = run("topics", "list", "--nonsense")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "kafkapy: No such option: --nonsense. See: kafkapy topics list --help.\n"


def test_a_process_that_failed_exits_1_with_a_sentence():
    done = run("topics", "list", "--bootstrap-server", "127.0.0.1:1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "kafkapy: No connection to 127.0.0.1:1: connection refused. Is a broker listening there?\n"


def test_a_traceback_is_shown_if_requested():
    done = run("topics", "list", "-b", "127.0.0.1:1", KAFKAPY_DEBUG="1")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "ConnectionFailed" in done.stderr


def test_an_interrupted_process_exits_130():
    code = (
        "import os, signal, sys, threading\n"
        "from kafkapy.tools import main, cli\n"
        "def interrupted(args): os.kill(os.getpid(), signal.SIGINT); threading.Event().wait()\n"
        "cli.run = interrupted\n"
        "sys.exit(main.main(['topics']))\n"
    )
    done = run(code=code)
    assert (done.returncode, done.stderr) == (130, "")


def test_a_closed_pipe_is_no_failure():
    names = "a" * 60
    code = (
        "import sys\n"
        "from kafkapy.tools import main, cli\n"
        f"cli.run = lambda args: [print('{names}') for _ in range(99999)]\n"
        "sys.exit(main.main(['topics']))\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.stderr is not None
        assert child.stderr.read() == b""
        assert child.wait() == 0


def buffered():
    """Return an environment in which Python buffers its output, as it usually does."""
    return {name: value for name, value in os.environ.items() if name not in ("KAFKAPY_DEBUG", "PYTHONUNBUFFERED")}


def test_output_that_cannot_be_written_is_a_failure_in_one_sentence():
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "kafkapy", "--version"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=buffered(), check=False)
    assert (done.returncode, done.stderr) == (1, b"kafkapy: No space left on device.\n")


@pytest.mark.parametrize(
    ("raised", "code", "words"),
    [
        ("ValueError('boo')", 1, b"kafkapy: unexpected error: ValueError: boo; "),
        ("KeyboardInterrupt", 130, b""),
    ],
)
def test_after_a_failure_output_that_cannot_be_written_changes_no_exit_code(raised, code, words):
    script = (
        "import sys\n"
        "from kafkapy.tools import main, cli\n"
        "def ended(args):\n"
        "    print('some output')\n"
        f"    raise {raised}\n"
        "cli.run = ended\n"
        "sys.exit(main.main(['topics']))\n"
    )
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=buffered(), check=False)
    assert (done.returncode, done.stderr.count(b"\n")) == (code, 1 if words else 0)
    assert done.stderr.startswith(words)


def test_a_pipe_that_nobody_reads_is_no_failure():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "kafkapy", "--version"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=buffered(), check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_command_whose_reader_closes_the_pipe_is_no_failure(tmp_path):
    (tmp_path / "t-0").mkdir()
    records = [(0, b"k", b"v" * 100, ())] * 10_000
    (tmp_path / "t-0" / "00000000000000000000.log").write_bytes(build(records))
    command = [sys.executable, "-m", "kafkapy", "log", "dump", "--print-data-log", str(tmp_path / "t-0")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.stderr is not None
        assert (child.stderr.read(), child.wait()) == (b"", 0)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nonsense"], "No such command 'nonsense'. See: kafkapy --help."),
        (["topics", "create"], "Missing argument 'TOPIC'. See: kafkapy topics create --help."),
        (["topics", "alter", "t"], "topics alter needs --partitions, --config or --delete-config."),
        (["topics", "create", "t", "--config", "x"], "--config 'x' is not KEY=VALUE, as in retention.ms=3600000."),
        (["topics", "list", "-b", "here"], "the address 'here' is not HOST:PORT"),
        (["configs", "describe"], "one of --topic TOPIC, --broker ID or --all-brokers."),
        (["configs", "describe", "-t", "t", "--broker", "1"], "one of --topic TOPIC, --broker ID or --all-brokers."),
        (["configs", "alter", "-t", "t"], "configs alter needs --set, --delete, --append or --subtract."),
        (["produce", "t", "--codec", "rar"], "--codec 'rar' is none of none, gzip, snappy, lz4, zstd."),
        (["produce", "t", "--acks", "2"], "--acks '2' is none of all, 1 and 0."),
        (
            ["produce", "t", "--json", "--key-separator", ":"],
            "--key-separator needs a text, and does not go with --json.",
        ),
        (
            ["consume", "t", "--from", "monday"],
            "--from 'monday' is neither earliest nor latest, nor an offset, nor a time",
        ),
        (
            ["consume", "t", "--group", ""],
            "--group '' is no name; give one to the consumers that share the partitions.",
        ),
        (["consume", "t", "--group", "g", "-p", "1"], "--partition does not go with --group: the group shares out"),
        (["consume", "t", "--group", "g", "--from", "7"], "--from '7' does not go with --group, only earliest and "),
        (["consume", "t", "--isolation", "none"], "Invalid value 'none' for '--isolation': "),
        (["groups", "list", "--state", "asleep"], "--state 'asleep' is none of PreparingRebalance, "),
        (["groups", "describe", "g", "--members", "--state"], "say one of --offsets, --members and --state."),
        (["groups", "delete"], "Missing argument 'GROUP'."),
        (["groups", "delete-offsets", "g"], "Missing option '--topic'"),
        (["groups", "delete-offsets", "g", "-t", "t:x"], "--topic 't:x': 'x' is no partition; write TOPIC:0,2-4."),
        (["groups", "reset-offsets", "g", "-t", "t"], "say one thing to reset to: --to-earliest, "),
        (["groups", "reset-offsets", "g", "-t", "t", "--to-offset", "3", "--to-latest"], "say one thing to reset to: "),
        (["groups", "reset-offsets", "-t", "t", "--to-latest"], "say which groups: their names, or --all-groups."),
        (["groups", "reset-offsets", "g", "--all-groups", "-t", "t", "--to-latest"], "say which groups: "),
        (["groups", "reset-offsets", "", "-t", "t", "--to-latest"], "the name of a group is empty, and a reset would "),
        (["transactions", "describe", ""], "a transactional id must not be empty."),
        (["transactions", "abort", ""], "the transactional id must not be empty."),
        (["groups", "reset-offsets", "g", "--to-latest"], "say which topics: --topic TOPIC, "),
        (["groups", "reset-offsets", "g", "--from-file", "f", "-t", "t"], "--from-file names topics itself"),
        (
            ["groups", "reset-offsets", "g", "-t", "t", "--to-latest", "--execute", "--dry-run"],
            "--execute and --dry-run contradict each other.",
        ),
        (
            ["groups", "reset-offsets", "g", "-t", "t", "--to-latest", "--export", "-", "--json"],
            "--export - and --json both want standard output; name a file.",
        ),
        (["groups", "reset-offsets", "g", "-t", "t", "--to-datetime", "x"], "--to-datetime 'x' is no time, as in 2024"),
        (["groups", "reset-offsets", "g", "-t", "t", "--by-duration", "x"], "--by-duration 'x' is no duration, as in "),
        (["groups", "reset-offsets", "g", "-t", "t", "--shift-by", "x"], "Invalid value 'x' for '--shift-by': "),
        (["transactions", "list", "--state", "x"], "--state 'x' is none of Empty, Ongoing, "),
        (["transactions", "list", "--longer-than", "x"], "--longer-than 'x' is no duration, as in 90s"),
        (["transactions", "find-hanging", "-p", "0"], "--partition needs exactly one topic."),
        (
            ["transactions", "abort"],
            "say what to abort: a transactional id, or --topic, --partition and --start-offset.",
        ),
        (["transactions", "abort", "x", "--topic", "t"], "say what to abort: a transactional id, or --topic, "),
        (["transactions", "abort", "--topic", "t", "--partition", "1"], "say what to abort: "),
        (["log", "dump"], "log dump needs a file or a directory"),
        (["log", "find", "--offset", "-3", "t"], "Invalid value '-3' for '--offset': "),
        (["log", "find", "--format=x", "t"], "Invalid value 'x' for '--format': 'x' is not one of 'value', "),
        (["start", "--nonsense"], "start has no option --nonsense; the call is: kafkapy start [server.properties]"),
        (["start", "a", "b"], "start takes one properties file, not also 'b'"),
        (["start", "-o"], "-o needs KEY=VALUE after it"),
        (["start", "-o", "x"], "-o 'x' is not KEY=VALUE"),
        (["start", "-o", "num.partitions=many"], "-o num.partitions=many: "),
    ],
)
def test_wrong_arguments_are_reported_in_a_sentence(kafkapy, words, sentence):
    code, out, err = kafkapy(*words)
    assert (code, out) == (2, "")
    assert err.startswith("kafkapy: ")
    assert sentence in err
    assert err.endswith(".\n")
    assert err.count("\n") == 1


def test_a_misspelled_command_gets_a_suggestion(kafkapy):
    assert kafkapy("log", "dmp") == (
        2,
        "",
        "kafkapy: No such command 'dmp'. Did you mean 'dump'? See: kafkapy log --help.\n",
    )


@pytest.mark.parametrize(
    "command", [["dump", "--print-data-log"], ["stats"], ["export", "--json"], ["find", "--key=k"]]
)
def test_names_of_any_bytes_are_shown_in_any_locale(tmp_path, command):
    directory = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xc3\xbc-0"))
    directory.mkdir()
    (directory / "00000000000000000000.log").write_bytes(build([(0, b"k", "\u00fc".encode(), ())]))
    for more in ({}, {"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "utf-8:strict"}):
        line = [sys.executable, "-m", "kafkapy", "log", *command, str(directory)]
        done = subprocess.run(line, capture_output=True, env={**os.environ, **more}, check=False)
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("words", [[], ["topics"], ["groups"], ["transactions"], ["configs"], ["log"]])
def test_a_command_without_its_subcommand_shows_its_help_and_exits_2(kafkapy, words):
    code, out, err = kafkapy(*words)
    assert code == 2
    assert "Usage: kafkapy" in out + err


@pytest.mark.parametrize(
    "words",
    [
        ["start"], ["topics"], ["topics", "list"], ["topics", "create"], ["topics", "describe"], ["topics", "alter"],
        ["topics", "delete"], ["configs", "describe"], ["configs", "alter"], ["produce"], ["consume"],
        *(["groups", name] for name in ("list", "describe", "reset-offsets", "delete", "delete-offsets")),
        *(["transactions", name] for name in ("list", "describe", "describe-producers", "find-hanging", "abort")),
        *(["log", name] for name in LOG_COMMANDS),
    ],
)  # fmt: skip
def test_every_command_has_help(kafkapy, words):
    for option in ("--help", "-h"):
        code, out, _ = kafkapy(*words, option)
        assert code == 0
        assert f"Usage: kafkapy {' '.join(words)}" in " ".join(out.split())


def test_the_error_names_a_file_that_cannot_be_read(kafkapy, tmp_path):
    code, _, err = kafkapy("start", tmp_path / "none.properties")
    assert (code, err) == (
        1,
        f"kafkapy: The properties file {tmp_path}/none.properties cannot be read: No such file or directory.\n",
    )


def test_a_wrong_setting_in_a_file_is_a_failure_that_names_it(kafkapy, tmp_path):
    (tmp_path / "s.properties").write_text("num.partitions=many\n")
    code, _, err = kafkapy("start", tmp_path / "s.properties")
    assert code == 1
    assert err.startswith("kafkapy: num.partitions=many: ")


def test_an_unexpected_error_says_how_to_see_the_traceback(kafkapy, monkeypatch):
    def broken(args):
        raise TypeError("boo")

    monkeypatch.setattr(main_module, "_run", broken)
    code, _, err = kafkapy("topics")
    assert code == 1
    assert err == ("kafkapy: unexpected error: TypeError: boo; run it again with KAFKAPY_DEBUG=1 for a traceback.\n")


def test_the_start_of_a_broker_imports_no_unneeded_library():
    code = (
        "import sys\n"
        "from kafkapy.tools import main, start\n"
        "start.serve = lambda file, overrides: start.config_of(file, overrides) and 0\n"
        "assert main.main(['start', '-o', 'log.dirs=/nowhere']) == 0\n"
        "print(*{name.partition('.')[0] for name in sys.modules} & "
        "{'typer', 'click', 'rich', 'prometheus_client', 'asyncio', 'ssl', 'http', 'lz4', 'snappy', 'zstandard'})\n"
    )
    done = run(code=code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")


def test_help_names_all_commands(kafkapy):
    _, out, _ = kafkapy("--help")
    assert all(f"│ {name} " in out for name in (*COMMANDS, "log"))
    _, out, _ = kafkapy("log", "--help")
    assert all(f"│ {name} " in out for name in LOG_COMMANDS)


def test_a_command_imports_nothing_that_only_other_commands_need():
    code = (
        "import sys\n"
        "from kafkapy.tools import main\n"
        "assert main.main(['log', 'dump', '--help']) == 0\n"
        "print(*sorted({'kafkapy.server', 'kafkapy.client', 'kafkapy.log.manager', 'pyarrow', 'matplotlib', 'kazoo', "
        "'numpy', 'asyncio', 'concurrent.futures'} & set(sys.modules)), file=sys.stderr)\n"
    )
    done = run(code=code)
    assert (done.returncode, done.stderr) == (0, "\n")


@pytest.mark.parametrize(
    ("words", "completed"),
    [("kafkapy to", "topics"), ("kafkapy log du", "dump"), ("kafkapy start --over", "--override")],
)
def test_a_shell_can_complete_commands_and_options(words, completed):
    done = run(
        code="import sys; from kafkapy.tools.main import main; sys.argv[0] = 'kafkapy'; sys.exit(main())",
        _KAFKAPY_COMPLETE="complete_bash",
        COMP_WORDS=words,
        COMP_CWORD=str(len(words.split()) - 1),
    )
    assert done.stdout.split() == [completed]


def test_other_commands_restore_the_signal_handlers(kafkapy):
    before = signal.getsignal(signal.SIGINT)
    kafkapy("--version")
    assert signal.getsignal(signal.SIGINT) is before


def test_the_error_for_an_outdated_compiled_module_says_what_to_do():
    with pytest.raises(ImportError) as failed:
        from kafkapy._ext.varint import of_a_later_version  # noqa: F401
    sentence = main_module.sentence_of(failed.value)
    assert sentence.startswith("kafkapy was built from older sources: cannot import name 'of_a_later_version' from ")
    assert sentence.endswith("; run pip install -e . in its checkout again.")
