"""Small programs that use applications from PyPI, which use mpi4py.

python -m tests.mpi.drivers NAME
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np


def square(number: float) -> float:
    return number * number


def ase() -> None:
    """A diffusion barrier by nudged elastic bands, an image on each rank."""
    from mpi4py import MPI  # ase takes mpi4py if it is loaded  # noqa: I001
    from ase.build import add_adsorbate, fcc100
    from ase.calculators.emt import EMT
    from ase.constraints import FixAtoms
    from ase.mep import NEB
    from ase.optimize import BFGS
    from ase.parallel import world

    assert world.size == MPI.COMM_WORLD.size
    start = fcc100("Al", size=(2, 2, 3))
    add_adsorbate(start, "Au", 1.7, "hollow")
    start.center(axis=2, vacuum=4.0)
    start.set_constraint(FixAtoms(mask=[atom.tag > 1 for atom in start]))
    end = start.copy()
    end[-1].x += end.get_cell()[0, 0] / 2
    for state in (start, end):
        state.calc = EMT()
        BFGS(state, logfile=None).run(fmax=0.05)
    images = [start, *(start.copy() for _ in range(world.size)), end]
    images[1 + world.rank].calc = EMT()
    band = NEB(images, parallel=True)
    band.interpolate()
    BFGS(band, logfile=None).run(fmax=0.05, steps=50)
    highest = MPI.COMM_WORLD.allreduce(images[1 + world.rank].get_potential_energy(), MPI.MAX)
    if world.rank == 0:
        print(f"barrier of {highest - start.get_potential_energy():.3f} eV")


def dask() -> None:
    """Rank 0 is the scheduler, rank 1 this program, the others are workers."""
    import dask_mpi
    from distributed import Client

    dask_mpi.initialize(nthreads=1, local_directory=tempfile.gettempdir(), dashboard=False)
    with Client() as client:
        print("sum of squares", sum(client.gather(client.map(square, range(1000)))))


def emcee() -> None:
    """A chain whose walkers are computed by the other ranks."""
    import emcee as library
    import schwimmbad as pools

    with pools.MPIPool() as pool:
        if not pool.is_master():
            pool.wait()
            sys.exit()
        random = np.random.RandomState(7)
        sampler = library.EnsembleSampler(12, 3, normal, pool=pool)
        sampler.random_state = random.get_state()
        sampler.run_mcmc(random.rand(12, 3), 100)
        print(f"the mean is {sampler.get_chain(flat=True).mean():.6f}")


def normal(x: Any) -> float:
    return float(-0.5 * np.sum(x**2))


def libensemble() -> None:
    """Rank 0 is the manager, the others simulate."""
    from libensemble import Ensemble
    from libensemble.gen_funcs.sampling import uniform_random_sample
    from libensemble.sim_funcs.simple_sim import norm_eval
    from libensemble.specs import ExitCriteria, GenSpecs, LibeSpecs, SimSpecs

    os.chdir(tempfile.mkdtemp())
    ensemble = Ensemble(
        libE_specs=LibeSpecs(comms="mpi", disable_log_files=True, save_every_k_gens=1000),
        sim_specs=SimSpecs(sim_f=norm_eval, inputs=["x"], outputs=[("f", float)]),
        gen_specs=GenSpecs(
            gen_f=uniform_random_sample,
            outputs=[("x", float, (1,))],
            user={"gen_batch_size": 4, "lb": np.array([-3.0]), "ub": np.array([3.0])},
        ),
        exit_criteria=ExitCriteria(sim_max=16),
    )
    ensemble.add_random_streams()
    history, _, _ = ensemble.run()
    if ensemble.is_manager:
        print(int(history["sim_ended"].sum()), "simulations")


def mpipool() -> None:
    import mpipool as library

    with library.MPIExecutor() as pool:
        pool.workers_exit()
        print("squares", list(pool.map(square, range(10))))


def neuron() -> None:
    """A cell on each rank; that of rank 1 is excited by the one of rank 0. NEURON calls MPI
    from C++."""
    os.environ["MPI_LIB_NRN_PATH"] = os.environ.get("MPI4PY_LIBMPI") or str(
        Path(sys.prefix) / "lib/libmpi.so.12"
    )
    from neuron import h

    h.nrnmpi_init()
    context = h.ParallelContext()
    rank = int(context.id())
    cell = h.IntFire1()
    context.set_gid2node(rank, rank)
    context.cell(rank, h.NetCon(cell, None))
    if rank == 0:
        start = h.NetStim()
        start.start, start.number = 1.0, 1
        first = h.NetCon(start, cell, 0.0, 1.0, 2.0)
    else:
        first = context.gid_connect(0, cell)
        first.weight[0], first.delay = 2.0, 2.0
    times, cells = h.Vector(), h.Vector()
    context.spike_record(rank, times, cells)
    context.set_maxstep(10)
    h.finitialize()
    context.psolve(20)
    print(f"rank {rank} of {int(context.nhost())} has fired at {list(times)}, {first.delay}")
    context.barrier()
    h.quit()


def schwimmbad() -> None:
    import schwimmbad as library

    with library.MPIPool() as pool:
        if not pool.is_master():
            pool.wait()
            sys.exit()
        print("squares", list(pool.map(square, range(10))))


class Valley:
    """A model for spotpy, whose parameters are found."""

    def parameters(self) -> Any:
        from spotpy import parameter

        return parameter.generate([parameter.Uniform("x", -5, 5), parameter.Uniform("y", -5, 5)])

    def simulation(self, vector: Any) -> list[float]:
        return [vector[0] - 1, vector[1] + 2]

    def evaluation(self) -> list[float]:
        return [0.0, 0.0]

    def objectivefunction(self, simulation: Any, evaluation: Any, params: Any = None) -> float:
        return -float(np.sum(np.square(simulation)))


def spotpy() -> None:
    """Samples that the other ranks evaluate."""
    from spotpy.algorithms import mc

    sampler = mc(Valley(), dbname="none", dbformat="ram", parallel="mpi", random_state=7)
    sampler.sample(200)
    print(f"best value {max(sampler.getdata()['like1']):.6f}")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
