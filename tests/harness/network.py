"""A network of hosts on this machine, whose links can be cut and slowed down: a network namespace for each host, joined
by a bridge that this process is connected to as well. It needs root.

A cut needs no packet filter: the sending host gets a neighbour entry with a hardware address that no host has, so what
it sends is lost without an error, as on a real network. A slow link needs no netem, which not every kernel has: a token
bucket (tbf) limits the rate and lets packets wait.
"""

import itertools
import os
import re
import subprocess
from pathlib import Path

NAME = re.compile(r"\bkp(\d+)n\d+(-\d+)?\b")
NO_HOST = "02:00:00:00:00:01"
_numbers = itertools.count(1)


def _ip(*words: object) -> str:
    done = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(map(str, words))} failed (it needs root): {done.stderr.strip()}")
    return done.stdout


class Network:
    """A bridge with hosts 1 to 200 on it. Hosts are made when they are first asked for; `close` removes all."""

    def __init__(self) -> None:
        _remove_what_dead_processes_left()
        self._name = f"kp{os.getpid()}n{next(_numbers)}"
        self._hosts: set[int] = set()
        self._cuts: set[tuple[int, int]] = set()
        self._slow: set[int] = set()
        self._prefix = _free_prefix()
        _ip("link", "add", self._name, "type", "bridge")
        _ip("addr", "add", f"{self._prefix}.254/24", "dev", self._name)
        _ip("link", "set", self._name, "up")

    def close(self) -> None:
        """Remove all hosts and the bridge. Processes in the namespaces should have ended."""
        for host in self._hosts:
            _ip("link", "del", self._namespace(host))
            _ip("netns", "del", self._namespace(host))
        self._hosts.clear()
        _ip("link", "del", self._name)

    def address(self, host: int) -> str:
        """Return the host's IPv4 address."""
        return f"{self._prefix}.{host}"

    def inside(self, host: int) -> list[str]:
        """Return the words to put before a command to run it on that host, in a process with the same id."""
        if host not in self._hosts:
            self._add(host)
        return ["nsenter", f"--net=/run/netns/{self._namespace(host)}"]

    def cut(self, source: int, target: int) -> None:
        """Lose everything that `source` sends to `target`. The other direction is not changed."""
        self._in(source, "neigh", "replace", self.address(target), "lladdr", NO_HOST, "nud", "permanent", "dev", "eth0")
        self._cuts.add((source, target))

    def separate(self, one: int, *others: int) -> None:
        """Lose everything that a host and the others send to each other. `others` may include the host."""
        for other in others:
            if other != one:
                self.cut(one, other)
                self.cut(other, one)

    def slow_down(self, host: int, kbit_per_s: int) -> None:
        """Limit the rate at which the host sends. Packets wait for up to two seconds before they are lost."""
        words = ["tc", "qdisc", "replace", "dev", "eth0", "root", "tbf"]
        words += ["rate", f"{kbit_per_s}kbit", "burst", "4kb", "latency", "2s"]
        subprocess.run([*self.inside(host), *words], check=True)
        self._slow.add(host)

    def heal(self) -> None:
        """End all cuts and slow links."""
        for source, target in self._cuts:
            self._in(source, "neigh", "del", self.address(target), "dev", "eth0")
        self._cuts.clear()
        for host in self._slow:
            subprocess.run([*self.inside(host), "tc", "qdisc", "del", "dev", "eth0", "root"], check=True)
        self._slow.clear()

    def _namespace(self, host: int) -> str:
        return f"{self._name}-{host}"

    def _in(self, host: int, *words: object) -> None:
        self.inside(host)
        _ip("-n", self._namespace(host), *words)

    def _add(self, host: int) -> None:
        name = self._namespace(host)
        _ip("netns", "add", name)
        self._hosts.add(host)
        _ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", name, "master", self._name, "up")
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")


def _free_prefix() -> str:
    """Return the first three numbers of a network of 256 addresses that no interface uses."""
    taken = _ip("-4", "-o", "addr")
    prefixes = (f"10.{64 + (os.getpid() + number) % 64}.{os.getpid() // 64 % 256}" for number in range(64))
    return next(prefix for prefix in prefixes if f" {prefix}." not in taken)


def _remove_what_dead_processes_left() -> None:
    """Remove namespaces and bridges of test processes that were killed before `close`."""

    def left(listed: str) -> set[str]:
        return {match[0] for match in NAME.finditer(listed) if not Path(f"/proc/{match[1]}").exists()}

    for name in left(_ip("netns", "list")):
        _ip("netns", "del", name)
    for name in left(_ip("-o", "link", "show", "type", "bridge")):
        _ip("link", "del", name)
