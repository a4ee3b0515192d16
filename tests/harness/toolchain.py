"""Finds the programs that the tests need, and caches what they build.

A missing program is a failure with a sentence that says how to get it, never a skip, since a suite that passes because
half of it did not run proves nothing.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

HOW_TO_GET = {
    "java": "a JDK, 17 or newer (Debian: apt-get install openjdk-17-jdk-headless)",
    "javac": "a JDK, 17 or newer (Debian: apt-get install openjdk-17-jdk-headless)",
    "keytool": "a JDK, 17 or newer (Debian: apt-get install openjdk-17-jdk-headless)",
    "mvn": "Apache Maven (Debian: apt-get install maven)",
    "go": "Go, 1.26 or newer, or any Go that can download it (Debian: apt-get install golang-go)",
    "node": "Node.js, 18 or newer (Debian: apt-get install nodejs npm)",
    "npm": "npm (Debian: apt-get install npm)",
    "kcat": "kcat (Debian: apt-get install kcat)",
    "openssl": "OpenSSL's command line tool (Debian: apt-get install openssl)",
    "gcc": "a C compiler (Debian: apt-get install gcc libc6-dev)",
    "kafkapy": "the project itself in the Python that runs the tests (pip install -e '.[test]')",
}


class MissingTool(RuntimeError):
    """Raised if a program that the tests need is not on this machine."""


def find(program: str) -> str:
    """Return the path of a program. Raise MissingTool, which says how to get it, if it is missing."""
    path = shutil.which(program)
    if path is None:
        raise MissingTool(
            f"{program} is missing: the interop tests need {HOW_TO_GET[program]}; scripts/test installs it"
        )
    return path


def cache_dir() -> Path:
    """Return the directory that keeps built helpers and resolved class paths between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    directory = Path(base) / "kafkapy"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def fingerprint(files: Iterable[Path], *more: str) -> str:
    """Return 16 hex digits that change when any of the files (or words) changes."""
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    for word in more:
        digest.update(word.encode() + b"\0")
    return digest.hexdigest()[:16]


def run(command: list[str], *, cwd: Path | None = None, env: dict[str, str] | None = None, timeout: float = 600) -> str:
    """Run a build command and return its standard output. If it fails, raise an error with its whole output."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        timeout=timeout,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


def maven_classpath(pom: Path, kafka_version: str) -> str:
    """Return the class path of a pom's dependencies with `-Dkafka.version`, from Maven's repository cache."""
    kept = cache_dir() / f"classpath-{fingerprint([pom], kafka_version)}.txt"
    if kept.exists():
        classpath = kept.read_text()
        if all(Path(entry).exists() for entry in classpath.split(":")):
            return classpath
    temporary = kept.with_suffix(f".{os.getpid()}")
    command = [find("mvn"), "-q", "-B", "-f", str(pom), f"-Dkafka.version={kafka_version}"]
    with (cache_dir() / "maven.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Maven allows no concurrent downloads into one repository
        run([*command, "dependency:build-classpath", f"-Dmdep.outputFile={temporary}"])
    temporary.replace(kept)
    return kept.read_text()


def java_classes(sources: Path, classpath: str) -> Path:
    """Return the directory of the classes compiled from all .java files below `sources`."""
    files = sorted(sources.rglob("*.java"))
    classes = cache_dir() / f"classes-{fingerprint(files, classpath)}"
    if not classes.exists():
        temporary = Path(f"{classes}.{os.getpid()}")
        run([find("javac"), "-nowarn", "-cp", classpath, "-d", str(temporary), *map(str, files)])
        _keep(temporary, classes)
    return classes


def python_with(*requirements: str) -> Path:
    """Return the Python of a virtual environment with these packages, for clients that conflict with the others."""
    python = Path("bin") / "python"
    directory = cache_dir() / f"python-{fingerprint([], sys.version, *requirements)}"
    if not directory.exists():
        temporary = Path(f"{directory}.{os.getpid()}")
        run([sys.executable, "-m", "venv", str(temporary)])
        run([str(temporary / python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *requirements])
        _keep(temporary, directory)
    return directory / python


def go_program(module: Path) -> Path:
    """Return the executable built from a Go module. If Go is too old, a newer Go is downloaded as a module."""
    program = cache_dir() / f"go-{fingerprint([*module.glob('*.go'), module / 'go.mod', module / 'go.sum'])}"
    if not program.exists():
        temporary = Path(f"{program}.{os.getpid()}")
        go, env = _go_for(module)
        run([go, "build", "-trimpath", "-o", str(temporary), "."], cwd=module, env=env)
        temporary.replace(program)
    return program


def _go_for(module: Path) -> tuple[str, dict[str, str]]:
    """Return the go command and its environment for a module: Go 1.21 and newer fetch the version in go.mod
    themselves; older ones (Debian 12 has 1.19) can download it as the module that newer ones use."""
    go = find("go")
    wanted = re.search(r"^go (\S+)$", (module / "go.mod").read_text(), re.MULTILINE)
    have = re.search(r"go(\d+)\.(\d+)", run([go, "version"], env={"GOTOOLCHAIN": "local"}, cwd=module.parent))
    assert wanted is not None
    assert have is not None
    if (int(have[1]), int(have[2])) >= tuple(map(int, wanted[1].split(".")[:2])):
        return go, {"GOTOOLCHAIN": "local"}
    if (int(have[1]), int(have[2])) >= (1, 21):
        return go, {"GOTOOLCHAIN": "auto"}
    return _downloaded_go(go, wanted[1]), {"GOTOOLCHAIN": "local"}


def _downloaded_go(go: str, version: str) -> str:
    arch = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    name = f"golang.org/toolchain@v0.0.1-go{version}.linux-{arch}"
    empty = cache_dir() / "go-toolchain"
    empty.mkdir(exist_ok=True)
    (empty / "go.mod").write_text("module toolchain\n")
    run([go, "mod", "download", name], cwd=empty)
    root = Path(run([go, "env", "GOMODCACHE"], cwd=empty).strip()) / name
    for program in [*root.glob("bin/*"), *root.glob("pkg/tool/*/*")]:
        program.chmod(0o755)  # a module's files are never executable, so the newer go does the same
    return str(root / "bin" / "go")


def node_modules(project: Path) -> Path:
    """Return a directory with the project's files and its dependencies, installed from the lock file."""
    files = [*project.glob("*.js"), project / "package.json", project / "package-lock.json"]
    directory = cache_dir() / f"node-{fingerprint(files)}"
    if not directory.exists():
        temporary = Path(f"{directory}.{os.getpid()}")
        temporary.mkdir()
        for file in files:
            shutil.copy(file, temporary)
        run([find("npm"), "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=temporary)
        _keep(temporary, directory)
    return directory


def _keep(temporary: Path, wanted: Path) -> None:
    """Rename a built directory to its final name. If another run was faster, keep that run's directory."""
    try:
        temporary.rename(wanted)
    except OSError:
        shutil.rmtree(temporary)
