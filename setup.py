"""Builds the Cython sources in ext/ as the modules of kafkapy._ext; everything else is in pyproject.toml.

The sources live in ext/ and the modules in kafkapy/_ext, so Cython is shown ext/ under the package's name
through a link in build/: `from kafkapy._ext.cursor cimport Reader` finds ext/cursor.pxd.

Spark finds data sources in importable packages named pyspark_*; ours are folders in kafkapy/spark/discovery, mapped to
the top level here.

Environment:
    KAFKAPY_BUILD_ONLY   names of modules separated by commas: build just these (development)
    KAFKAPY_SANITIZE     set to build with AddressSanitizer (tests/fuzz/run_asan.py)
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).parent
CIMPORTS = Path("build") / "cimports"
SPARK_PACKAGES = Path("kafkapy") / "spark" / "discovery"


def link_sources_under_package_name() -> None:
    package = HERE / CIMPORTS / "kafkapy"
    package.mkdir(parents=True, exist_ok=True)
    link = package / "_ext"
    if not link.is_symlink() or link.resolve() != (HERE / "ext").resolve():
        if link.is_symlink():
            link.unlink()
        link.symlink_to((HERE / "ext").resolve())


class BuildOrStop(build_ext):
    """A module that does not build stops the install with the reason: there is no slow fallback to hide behind."""

    def finalize_options(self) -> None:
        super().finalize_options()
        if self.parallel is None:
            self.parallel = os.cpu_count()

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            self.add_to_sys_path()

    def add_to_sys_path(self) -> None:
        """Put the checkout and the folder of the Spark packages on sys.path.

        An editable install finds packages through an import hook, which is asked last. Python started beside a checkout
        that is called kafkapy, as `git clone` calls it, would take that directory for a namespace package first; a
        package on sys.path comes before it. Spark lists what is on sys.path, and knows nothing of the hook.
        """
        unpacked_wheel = Path(self.get_finalized_command("install").install_lib)
        here = HERE.resolve()
        (unpacked_wheel / "kafkapy-checkout.pth").write_text(f"{here}\n{here / SPARK_PACKAGES}\n")

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as reason:
            raise SystemExit(
                f"kafkapy: the extension {ext.name} ({ext.sources[0]}) did not build: {reason}\n"
                "kafkapy needs a C compiler and Python's headers (Debian: apt-get install gcc python3-dev)."
            ) from reason


def extensions() -> list[Extension]:
    only = set(filter(None, os.environ.get("KAFKAPY_BUILD_ONLY", "").split(",")))
    flags = ["-O2", "-fno-strict-overflow", "-Wno-unused-function"]
    links: list[str] = []
    if os.environ.get("KAFKAPY_SANITIZE"):
        flags += ["-fsanitize=address", "-fno-omit-frame-pointer", "-g"]
        links += ["-fsanitize=address"]
    modules = sorted((HERE / "ext").glob("*.pyx"))
    if not modules:
        raise SystemExit(
            f"kafkapy: there are no Cython sources in {HERE / 'ext'}: this copy of the source is not whole"
        )
    headers = [str(header.relative_to(HERE)) for header in sorted((HERE / "ext").glob("*.pxd"))]
    return [
        Extension(
            f"kafkapy._ext.{source.stem}",
            [str(source.relative_to(HERE))],
            extra_compile_args=flags,
            extra_link_args=links,
            # The source is named again because cythonize puts the C file in its place: an sdist takes it from here.
            depends=[str(source.relative_to(HERE)), *headers],
        )
        for source in modules
        if not only or source.stem in only
    ]


link_sources_under_package_name()
spark_packages = find_packages(SPARK_PACKAGES)
setup(
    packages=[*find_packages(include=["kafkapy", "kafkapy.*"]), *spark_packages],
    package_dir={name: str(SPARK_PACKAGES / name) for name in spark_packages},
    ext_modules=cythonize(
        extensions(),
        include_path=[str(CIMPORTS)],
        build_dir="build/cython",
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "initializedcheck": False,
            "freethreading_compatible": True,
        },
    ),
    cmdclass={"build_ext": BuildOrStop},
)
