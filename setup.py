"""The build hook; everything that is data stands in setup.cfg.

Four kinds of extensions: the core, the plug-ins and the faults of the tests
(cffi, each described by a `build.py` that exposes `ffibuilder`), the binding
(hand-written), and the MPI library with its host, which are no modules of Python
(mpi/pscompy_mpi/build.py compiles them).
A plug-in's `build.py` may name the headers of its fabric, for example
`HEADERS = ("infiniband/verbs.h",)`. A plug-in whose headers are missing is
left out, and the reason is written to NOT_BUILT for `pscompy info`. It may name
a shared library, LIBRARY, of the C files beside it, which the plug-in opens at
run time. PSP_BUILD_PLUGINS=shm,tcp makes the listed ones mandatory. What is attempted
and does not compile fails the build.
"""

import json
import os
import runpy
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy
from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.editable_wheel import _StaticPth, editable_wheel
from setuptools.errors import CompileError
from setuptools.modified import newer_group

# An isolated build has no path to this folder.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent / "mpi")]

CORE = Path("pscompy/core")
PROTO = Path("pscompy/proto")
COLL = Path("pscompy/coll")
PLUGINS = Path("pscompy/plugins")
FOLDERS = ("pscompy/core", "pscompy/transport/python", "pscompy/testing", "gateway/pscompy_gateway")
ALWAYS = [path for folder in FOLDERS for path in Path(folder).glob("build.py")]
NOT_BUILT = PLUGINS / "not_built.json"
MPI = Path("mpi/pscompy_mpi")
MPI_FILES = {"libmpi": "libmpi.so.12", "_host": "_host.so"}  # extensions, which are no modules
ABI_HEADERS = sorted(
    str(header)
    for folder in (CORE, PROTO, COLL, Path("pscompy/transport"))
    for header in folder.rglob("*.h")
)


class BuildWithHeaders(build_ext):
    """Rebuilds an extension when a header changes that it may include; builds shared libraries;
    as many extensions at once as there are processors."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or True

    def get_ext_filename(self, fullname: str) -> str:
        """A shared library has no suffix of this Python's."""
        folder, _, name = fullname.rpartition(".")
        if name in MPI_FILES:
            return str(Path(*folder.split("."), MPI_FILES[name]))
        if name.startswith("lib"):
            return f"{Path(*fullname.split('.'))}.so"
        return str(super().get_ext_filename(fullname))

    def build_extension(self, ext: Extension) -> None:
        if ext.name.rpartition(".")[2] in MPI_FILES:
            self.build_mpi(ext)
            return
        folders = {Path(source).parent for source in ext.sources if not Path(source).is_absolute()}
        own = [str(path) for folder in folders for path in folder.rglob("*.h")]
        ext.depends = sorted({*ext.depends, *ABI_HEADERS, *own})
        super().build_extension(ext)

    def build_mpi(self, ext: Extension) -> None:
        """The library or its host, if a file has changed that it is made of."""
        from pscompy_mpi import build, generate

        target = Path(self.get_ext_fullpath(ext.name)).absolute()
        if not (self.force or newer_group([*ABI_HEADERS, *map(str, build.depends())], str(target))):
            return
        made = Path(self.build_temp, ext.name).absolute()
        generate.write(made)
        compiles = build.compile_host if target.name == build.HOST else build.compile_library
        try:
            compiles(made, target)
        except (OSError, subprocess.CalledProcessError) as error:
            raise CompileError(f"{target.name} of pscompy_mpi: {error}") from error


class PlainEditable(editable_wheel):
    """An editable install adds four folders to sys.path, and no more.

    For packages in several folders setuptools by itself installs an import hook. Python asks it
    last, so a checkout that lies beside the program, in a folder called pscompy, would hide the
    package.
    """

    def _select_strategy(self, name: str, tag: str, build_lib: str) -> _StaticPth:
        return _StaticPth(
            self.distribution, name, [Path.cwd() / it for it in ("", "gateway", "softni", "mpi")]
        )


def missing_header(build_file: Path) -> str | None:
    """The first header that the plug-in needs and the compiler does not find."""
    for header in runpy.run_path(str(build_file)).get("HEADERS", ()):
        if not compiler_finds(header):
            return header
    return None


def compiler_finds(header: str) -> bool:
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    flags = shlex.split(f"{os.environ.get('CPPFLAGS', '')} {os.environ.get('CFLAGS', '')}")
    command = [*compiler, *flags, "-E", "-x", "c", "-o", os.devnull, "-"]
    try:
        ended = subprocess.run(
            command, input=f"#include <{header}>\n", text=True, capture_output=True
        )
    except FileNotFoundError:
        return False
    return ended.returncode == 0


def select_plugins() -> tuple[list[Path], dict[str, str]]:
    """The build files to use, and for each plug-in left out the reason."""
    wanted = {name for name in os.environ.get("PSP_BUILD_PLUGINS", "").split(",") if name}
    build_files = {path.parent.name: path for path in sorted(PLUGINS.glob("*/build.py"))}
    if unknown := wanted - set(build_files):
        sys.exit(
            f"PSP_BUILD_PLUGINS: no plug-in {', '.join(sorted(unknown))}"
            f" (there are {', '.join(build_files)})"
        )
    missing = {name: missing_header(path) for name, path in build_files.items()}
    left_out = {name: f"{header} missing" for name, header in missing.items() if header}
    if fatal := wanted & set(left_out):
        sys.exit("\n".join(f"PSP_BUILD_PLUGINS: {name}: {left_out[name]}" for name in fatal))
    return [path for name, path in build_files.items() if name not in left_out], left_out


def libraries(build_files: list[Path]) -> list[Extension]:
    made = [runpy.run_path(str(path)).get("LIBRARY") for path in build_files]
    return [
        Extension(
            f"{library.parent.name}.{library.stem}",
            sources=sorted(map(str, library.parent.glob("*.c"))),
            include_dirs=["."],
            extra_compile_args=["-std=c11", "-D_GNU_SOURCE", "-O3", "-fvisibility=hidden"],
            extra_link_args=["-pthread", "-Wl,-Bsymbolic"],
        )
        for library in made
        if library
    ]


def record(left_out: dict[str, str]) -> None:
    text = json.dumps(left_out, indent=1, sort_keys=True) + "\n"
    if PLUGINS.is_dir() and not (NOT_BUILT.exists() and NOT_BUILT.read_text() == text):
        NOT_BUILT.write_text(text)


build_files, left_out = select_plugins()
record(left_out)
setup(
    packages=[
        *find_packages(include=["pscompy*"]),
        *find_packages("gateway"),
        *find_packages("softni"),
        *find_packages("mpi"),
    ],
    cffi_modules=[f"{path}:ffibuilder" for path in [*ALWAYS, *build_files]],
    ext_modules=[
        Extension(
            "pscompy.api.c._binding",
            sources=sorted(str(path) for path in Path("pscompy/api/c").glob("*.c")),
            include_dirs=["."],
            extra_compile_args=[
                # A CFLAGS of the environment replaces Python's, and its -O3 with them.
                *("-std=c11", "-O3", "-flto=auto", "-fvisibility=hidden"),
                *("-isystem", numpy.get_include()),
            ],
        ),
        *libraries(build_files),
        *(Extension(f"{MPI.name}.{name}", sources=[]) for name in MPI_FILES if MPI.exists()),
    ],
    cmdclass={"build_ext": BuildWithHeaders, "editable_wheel": PlainEditable},
)
