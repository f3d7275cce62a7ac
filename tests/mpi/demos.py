"""The list of programs for applications.py: mpi4py's demos, and applications from PyPI."""

from __future__ import annotations

from typing import NamedTuple

TIMES = r"\d+\.\d+"  # what differs between two runs of a program that measures


class Program(NamedTuple):
    """A program, and how it is run: Python's arguments, in a folder of the demos."""

    name: str
    arguments: str
    folder: str = "."
    shows: str = ""  # a pattern that its output has
    ranks: int = 2
    given: str = ""  # its standard input
    varies: str = ""  # a pattern of what differs between two runs of it
    build: str = ""  # a command that compiles it before
    needs: str = ""  # what it needs and the library has not, or this machine


def demo(path: str, shows: str = "", **more: object) -> Program:
    """A program of mpi4py's demos: its path and arguments."""
    file, *words = path.split()
    folder, _, name = file.rpartition("/")
    return Program(path, " ".join([name, *words]), folder or ".", shows)._replace(**more)


def application(name: str, shows: str, ranks: int = 3, varies: str = "") -> Program:
    """A function of drivers.py, which uses the application."""
    return Program(name, f"-m tests.mpi.drivers {name}", ".", shows, ranks, varies=varies)


def wrapped(tool: str, build: str) -> Program:
    """A demo that wraps a function in C."""
    hello = "I am process 1 of 2 on"
    return demo(f"wrap-{tool}/test.py", hello, build=build)


def pooled(arguments: str, shows: str = "") -> Program:
    """A demo of mpi4py.futures, whose workers are ranks."""
    name = f"futures/{arguments.split()[0]}"
    words = f"-m mpi4py.futures {arguments}"
    return Program(name, words, "futures", shows, ranks=3, varies=r"\d+\.\d+ seconds")


HELLO = "I am process 4 of 5 on"
OSU = "allgather alltoall alltoallv barrier bcast bibw bw gather latency multi_lat scatter"
RMA, SPAWN = "windows that are not shared", "MPI_Comm_spawn"
EVERY = "all functions of MPI to be exported"
EXAMPLES = "2.01 2.08 2.16 2.29 2.32 2.34 2.35 3.01 3.02 3.03 3.04 3.05 3.06 3.07 3.08 3.09"
EXAMPLES += " 3.11 3.12 3.13"
SWITCHES = "threads=true threads=false thread_level=single thread_level=multiple"
SWITCHES += " fast_reduce=true fast_reduce=false recv_mprobe=true recv_mprobe=false"
SWITCHES += " irecv_bufsz=0 irecv_bufsz=1024"
SWITCHES += " errors=default errors=exception errors=abort errors=fatal"
SHARED = "mpicc -shared -fPIC helloworld.c -o libhelloworld.so"
INCLUDE = "-I$(python -c 'import mpi4py; print(mpi4py.get_include())') $(python3-config --includes)"
MODULE = "helloworld$(python3-config --extension-suffix)"

DEMOS = (
    demo("helloworld.py", HELLO, ranks=5),
    *(demo(f"osu_{name}.py", "# MPI", varies=r"\d+\.\d+|\d{3,}") for name in OSU.split()),
    demo("compute-pi/cpi-cco.py", r"approximately 3\.14160098", given="100\n"),
    demo("compute-pi/cpi-rma.py", given="100\n", needs=RMA),
    demo("compute-pi/cpi-dpm.py", given="100\n", ranks=1, needs=SPAWN),
    *(demo(f"init-fini/test_0.py {switch}") for switch in SWITCHES.split()),
    *(demo(f"init-fini/test_{number}.py") for number in (1, 2, 3, 4, 5, 6, "mpi40")),
    demo("mandelbrot/mandelbrot.py", "all tasks, sum", varies=TIMES),
    demo("mandelbrot/mandelbrot-master.py", ranks=1, needs=f"{SPAWN}, Fortran"),
    *(demo(f"mpi-ref-v1/ex-{number}.py") for number in EXAMPLES.split()),
    demo("nxtval/nxtval-threads.py", ranks=5),
    *(demo(f"nxtval/nxtval-{it}.py", needs=RMA) for it in ("onesided", "scalable", "mpi3")),
    demo("nxtval/nxtval-dynproc.py", needs=SPAWN),
    demo("profiling/cpi.py", ranks=4, varies=r"\d\.\d+(e-\d+)?"),
    demo("profiling/ring.py", ranks=4),
    demo("profiling/threads.py", ranks=4),
    demo("reductions/test_reductions.py -q", ranks=5),
    demo("sequential/test_seq.py", HELLO, ranks=5),
    demo("spawning/cpi-master.py ./cpi-worker.py", ranks=1, needs=SPAWN),
    demo("threads/sendrecv.py", ranks=1),
    pooled("run_cpi.py", r"pi: 3\.1415"),
    pooled("run_hello.py", "I am worker 1 of 2"),
    pooled("run_primes.py", "is prime: True"),
    pooled("run_julia.py", "Julia Set"),
    pooled("run_mandelbrot.py", "Mandelbrot Set"),
    pooled("test_futures.py -q"),
    demo("futures/run_crawl.py", needs="web sites"),
    wrapped("c", f"mpicc {INCLUDE} -shared -fPIC helloworld.c -o {MODULE}"),
    wrapped("ctypes", SHARED),
    wrapped("cffi", SHARED),
    wrapped(
        "cython", f"cython helloworld.pyx && mpicc {INCLUDE} -shared -fPIC helloworld.c -o {MODULE}"
    ),
    wrapped(
        "pybind11",
        f"MPICH_CXX=g++ mpicxx $(python -m pybind11 --includes) {INCLUDE} -shared -fPIC"
        f" helloworld.cxx -o {MODULE}",
    ),
    *(demo(f"wrap-{it}/test.py", needs=it) for it in ("boost", "nanobind", "swig")),
    *(demo(f"wrap-{it}/test.py", needs="Fortran") for it in ("ctypes-f90", "ctypes-f08", "f2py")),
    *(demo(f"cuda-aware-mpi/use_{it}.py", needs="a GPU") for it in ("cupy", "numba")),
    Program(
        "helloworld.c", "-- ./helloworld", ".", HELLO, 5, build="mpicc helloworld.c -o helloworld"
    ),
    demo("embedding/helloworld.c", needs="MPI_Init before Py_Initialize"),
    *(
        demo(f"libmpi-cffi/test_{it}.py", needs=EVERY)
        for it in ("helloworld", "ringtest", "latency")
    ),
)

APPLICATIONS = (
    application("ase", "barrier of .* eV"),
    application("dask", "sum of squares 332833500"),
    application("emcee", "the mean is .*"),
    application("libensemble", "16 simulations"),
    application("mpipool", "squares .* 81"),
    application("neuron", "rank 1 of 2 has fired", ranks=2),
    application("schwimmbad", "squares .* 81"),
    application("spotpy", "best value .*", varies="^(?!best).*$"),  # it tells the time that is left
)
