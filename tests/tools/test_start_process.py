"""`kafkapy start` as a user or a service manager runs it: a process with output lines and signals."""

import ctypes
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest

from kafkapy.client import Cluster
from kafkapy.version import VERSION

FREE = "listeners=PLAINTEXT://127.0.0.1:0"


@contextmanager
def started(*words, on_hangup=signal.SIG_DFL):
    """Start the process, and yield it with the first line of its output. `on_hangup` is SIG_IGN for a start as with
    nohup. It is always set, because the tests themselves may run with nohup."""
    child = subprocess.Popen(
        [sys.executable, "-m", "kafkapy", "start", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, on_hangup),
    )
    with child:
        try:
            assert child.stdout is not None
            yield child, child.stdout.readline()
        finally:
            child.kill()


def failed(*words):
    done = subprocess.run(
        [sys.executable, "-m", "kafkapy", "start", *words], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr.splitlines()[-1]


def no_room_for_threads():
    """Limit a child so that it can start no thread: a stack of RLIMIT_STACK does not fit into the address space."""
    resource.setrlimit(resource.RLIMIT_STACK, (2 << 30, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))


def test_a_start_without_enough_threads_says_which_limit_to_raise(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "kafkapy", "start", "-o", f"log.dirs={tmp_path}", "-o", FREE],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        preexec_fn=no_room_for_threads,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    assert re.fullmatch(
        r"kafkapy: the thread kafkapy-\w+ cannot be started; \d+ threads run \(can't start new thread\): raise "
        r"the limit on threads \(ulimit -u, .*\) or on memory \(ulimit -v, .*\)\.",
        done.stderr.splitlines()[-1],
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_broker_says_when_it_is_ready_and_a_signal_stops_it_cleanly(tmp_path, number):
    with started("-o", f"log.dirs={tmp_path}", "-o", FREE) as (child, line):
        ready = re.fullmatch(
            rf"kafkapy {re.escape(VERSION)} ready: PLAINTEXT://(127\.0\.0\.1:\d+) data={tmp_path} pid={child.pid}\n",
            line,
        )
        assert ready, line
        with Cluster(ready[1]) as cluster:
            cluster.refresh()
        child.send_signal(number)
        out, err = child.communicate(timeout=60)
        assert (child.returncode, out) == (0, "")
        assert "Traceback" not in err
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_broker_that_nohup_has_started_ignores_sighup(tmp_path):
    with started("-o", f"log.dirs={tmp_path}", "-o", FREE, on_hangup=signal.SIG_IGN) as (child, _):
        with open(f"/proc/{child.pid}/status", encoding="ascii") as status:
            (ignored,) = re.findall(r"^SigIgn:\s*(\w+)$", status.read(), re.MULTILINE)
        assert int(ignored, 16) & 1 << signal.SIGHUP - 1
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0


def test_a_signal_that_does_not_interrupt_the_main_thread_stops_the_broker(tmp_path):
    """Here the kernel gives the signal to another thread. A signal just before the main thread begins to wait does not
    interrupt it either."""
    with started("-o", f"log.dirs={tmp_path}", "-o", FREE) as (child, _):
        others = {int(name) for name in os.listdir(f"/proc/{child.pid}/task")} - {child.pid}
        assert ctypes.CDLL(None).tgkill(child.pid, min(others), signal.SIGTERM) == 0
        assert child.wait(60) == 0
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_settings_come_from_a_file_and_the_arguments(tmp_path):
    (tmp_path / "server.properties").write_text(f"log.dirs={tmp_path}/data\nlisteners=PLAINTEXT://127.0.0.1:1\n")
    with started(str(tmp_path / "server.properties"), "-o", FREE) as (_, line):
        assert f"data={tmp_path}/data " in line


def test_the_ready_line_names_all_listeners(tmp_path):
    listeners = "listeners=ONE://127.0.0.1:0,TWO://[::1]:0"
    protocols = "listener.security.protocol.map=ONE:PLAINTEXT,TWO:PLAINTEXT"
    more = ["-o", listeners, "-o", protocols, "-o", "inter.broker.listener.name=ONE"]
    with started("-o", f"log.dirs={tmp_path}", *more) as (_, line):
        assert re.search(r"ready: ONE://127\.0\.0\.1:\d+,TWO://\[::1\]:\d+ data=", line), line


def test_a_second_signal_ends_the_broker_at_once_with_130():
    code = (
        "import sys, threading, types\n"
        "class BrokerServer:\n"
        "    listeners = ['PLAINTEXT://127.0.0.1:1']\n"
        "    def __init__(self, config, on_failure): pass\n"
        "    def start(self): pass\n"
        "    def wait_until_loaded(self, timeout): return False\n"
        "    def stop(self):\n"
        "        print('stopping', flush=True)\n"
        "        threading.Event().wait()\n"
        "sys.modules['kafkapy.server.broker'] = types.SimpleNamespace(BrokerServer=BrokerServer)\n"
        "from kafkapy.tools.main import main\n"
        "sys.exit(main(['start', '-o', 'log.dirs=/nowhere']))\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert " ready: " in child.stdout.readline()
        child.send_signal(signal.SIGTERM)
        assert child.stdout.readline() == "stopping\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 130


def test_a_second_sighup_does_not_end_the_broker_before_it_has_stopped():
    """A closed terminal may cause two signals: the shell sends one to its jobs, the kernel one when the shell ends."""
    code = (
        "import signal, sys, types\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
        "class BrokerServer:\n"
        "    listeners = ['PLAINTEXT://127.0.0.1:1']\n"
        "    def __init__(self, config, on_failure): pass\n"
        "    def start(self): pass\n"
        "    def wait_until_loaded(self, timeout): return True\n"
        "    def stop(self):\n"
        "        print('stopping', flush=True)\n"
        "        sys.stdin.readline()\n"
        "        print('stopped', flush=True)\n"
        "sys.modules['kafkapy.server.broker'] = types.SimpleNamespace(BrokerServer=BrokerServer)\n"
        "from kafkapy.tools.main import main\n"
        "sys.exit(main(['start', '-o', 'log.dirs=/nowhere']))\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert " ready: " in child.stdout.readline()
        child.send_signal(signal.SIGHUP)
        assert child.stdout.readline() == "stopping\n"
        child.send_signal(signal.SIGHUP)
        assert child.communicate("\n", timeout=60) == ("stopped\n", None)
        assert child.returncode == 0


def test_a_broker_that_cannot_continue_exits_1_with_the_reason():
    code = (
        "import sys, types\n"
        "class BrokerServer:\n"
        "    listeners = ['PLAINTEXT://127.0.0.1:1']\n"
        "    def __init__(self, config, on_failure): self.fail = on_failure\n"
        "    def start(self): self.fail('the disk is gone')\n"
        "    def stop(self): pass\n"
        "    def wait_until_loaded(self, timeout): return False\n"
        "sys.modules['kafkapy.server.broker'] = types.SimpleNamespace(BrokerServer=BrokerServer)\n"
        "from kafkapy.tools.main import main\n"
        "sys.exit(main(['start', '-o', 'log.dirs=/nowhere']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "kafkapy: The broker stopped: the disk is gone.\n"


def test_the_error_names_a_port_in_use(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, sentence = failed("-o", f"log.dirs={tmp_path}", "-o", f"listeners=PLAINTEXT://127.0.0.1:{port}")
    assert code == 1
    assert f"127.0.0.1:{port}" in sentence


def test_the_error_names_a_directory_that_another_broker_uses(tmp_path):
    with started("-o", f"log.dirs={tmp_path}", "-o", FREE):
        code, sentence = failed("-o", f"log.dirs={tmp_path}", "-o", FREE)
    assert code == 1
    assert str(tmp_path) in sentence


def test_the_error_names_a_log_in_two_directories(tmp_path):
    words = ["-o", f"log.dirs={tmp_path}/one,{tmp_path}/two", "-o", FREE]
    with started(*words):
        pass
    for name in ("one", "two"):
        (tmp_path / name / "t-0").mkdir()
    code, sentence = failed(*words)
    assert (code, sentence) == (
        1,
        f"kafkapy: t-0 is in two directories, {tmp_path}/one/t-0 and {tmp_path}/two/t-0: move one of them elsewhere, "
        "usually the one with fewer records.",
    )


@pytest.mark.parametrize("host", ["no.such.host.invalid", "a..b"])
def test_the_error_names_a_limited_host_that_does_not_resolve(tmp_path, host):
    code, sentence = failed(
        "-o", f"log.dirs={tmp_path}", "-o", FREE, "-o", f"max.connections.per.ip.overrides={host}:3"
    )
    assert code == 1
    assert sentence.startswith(f"kafkapy: max.connections.per.ip.overrides={host}:3: the host does not resolve (")
    assert sentence.endswith("): check the name.")


def test_the_error_names_a_log_directory_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    code, sentence = failed("-o", f"log.dirs={tmp_path}/file", "-o", FREE)
    assert code == 1
    assert f"{tmp_path}/file" in sentence


def test_an_unreachable_zookeeper_is_reported_in_a_sentence(tmp_path):
    where = "zookeeper.connect=127.0.0.1:1\nzookeeper.connection.timeout.ms=300\n"
    (tmp_path / "server.properties").write_text(f"log.dirs={tmp_path}\n{where}")
    code, sentence = failed(str(tmp_path / "server.properties"))
    assert code == 1
    assert "zookeeper.connect" in sentence
    assert "127.0.0.1:1" in sentence


# The signal comes at the first, the second, the third ... step of the main thread after the ready line. The alarm sends
# it if the main thread waits before it has done so many steps.
AT_EVERY_STEP = """
import signal, sys
from kafkapy.server import broker
from kafkapy.tools import start

class Server:
    def __init__(self, *args, **more):
        self.listeners = ()
    def start(self, timeout=None):
        pass
    stop = wait_until_loaded = start

def ready(*_):
    global fired
    fired = False
    left = [step]
    def tick(*_):
        global fired
        left[0] -= 1
        if left[0] == 0:
            fired = True
            sys.setprofile(None)
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.raise_signal(signal.SIGTERM)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    sys.setprofile(tick)
    return "ready"

def late(*_):
    global waited
    sys.setprofile(None)
    if not fired:  # by a step of this very handler
        waited = True
        signal.raise_signal(signal.SIGTERM)

broker.BrokerServer, start.ready_line = Server, ready
signal.signal(signal.SIGALRM, late)
step, waited = 1, False
while not waited:
    assert start.serve(None, {"log.dirs": sys.argv[1], "listeners": "PLAINTEXT://127.0.0.1:0"}) == 0
    step += 1
print(step)
"""


def test_a_signal_ends_the_broker_at_whatever_step_it_arrives(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", AT_EVERY_STEP, str(tmp_path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout.split()[-1]) > 2


def test_a_start_without_the_zookeeper_client_is_refused_before_anything_is_created(tmp_path):
    data = tmp_path / "data"
    words = ["start", "-o", "zookeeper.connect=127.0.0.1:1", "-o", f"log.dirs={data}"]
    script = f"import sys; sys.modules['kazoo'] = None\nfrom kafkapy.tools.main import main\nsys.exit(main({words!r}))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].startswith("kafkapy: zookeeper.connect needs kazoo: run pip install ")
    assert not data.exists()
