"""Eight threads in C on endpoints, whose messages go to all other ranks; by real jobs."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path

import pytest

import pscompy
from pscompy import capi

MESSAGES = int(os.environ.get("PSCOMPY_TEST_STORM_MESSAGES", "1024"))
RANKS, THREADS = 5, 8


def storm(path, threads, messages):
    function = ctypes.CDLL(path).storm
    failed = []

    def work(k, endpoint):
        others = [endpoint[rank] for rank in range(endpoint.size) if rank != endpoint.rank]
        for connection in others:
            connection.open()
        peers = (ctypes.c_void_p * len(others))(*map(capi.connection, others))
        worker = ctypes.c_void_p(capi.worker(endpoint.session))
        table = ctypes.c_void_p(capi.table())
        failed.append(function(table, worker, peers, len(others), endpoint.rank, k, messages))

    with pscompy.World() as world:
        endpoints = world.endpoints(threads)
        running = [threading.Thread(target=work, args=it) for it in enumerate(endpoints)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        world.barrier()
        print(world.rank, failed == [0] * threads, world.stats["received_messages"])


@pytest.mark.parametrize("env", [{}, {"PSP_SHM": "0"}], ids=["shm", "tcp"])
def test_eight_threads_in_c(run, script, compiler, tmp_path, env):
    source = Path(__file__).with_name("storm.c")
    library = compiler(tmp_path / "storm.so", [source], ["-O2", "-fPIC"], link=["-shared"])
    lines = run.lines(RANKS, *run.python(script(storm, str(library), THREADS, MESSAGES)), **env)
    told = [line.split() for line in sorted(lines)]
    assert [it[:2] for it in told] == [[str(rank), "True"] for rank in range(RANKS)]
    assert all(int(it[2]) >= THREADS * (RANKS - 1) * MESSAGES for it in told), lines
