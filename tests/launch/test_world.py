"""World: ranks, their names and connections, and messages between them; by real jobs."""

from __future__ import annotations

import gc
import json
import os
import pickle
import signal
import sys
import time

import numpy as np
import pytest

import pscompy


def ring():
    with pscompy.World() as world:
        after, before = (world.rank + 1) % world.size, (world.rank - 1) % world.size
        request = world.isend(f"from {world.rank}".encode(), dest=after, tag=7)
        data, status = world.recv_status(source=before)
        request.wait()
        assert (bytes(data), status) == (f"from {before}".encode(), (before, 7, len(data)))
        used = {rank: world[rank].transport for rank in range(world.size)}
        told = {
            "rank": world.rank,
            "used": {rank: name for rank, name in used.items() if name},
            "up": world.stats["connections_up"],
            "made": world.stats["connections_made"],
            "explained": str(world[after].explain()),
        }
        os.write(1, (json.dumps(told) + "\n").encode())  # mpiexec cuts lines at every write


def run_ring(launch, n, script, **env):
    told = [json.loads(line) for line in launch.lines(n, *launch.python(script(ring)), **env)]
    return sorted(told, key=lambda one: one["rank"])


# ---- a ring ----


TIMES = (
    *("PSP_FINALIZE_TIMEOUT", "PSP_SHUTDOWN_TIMEOUT", "PSP_DEADLOCK_WARNINGS"),
    *("PSP_TCP_CONNECT_TIMEOUT", "PSP_TCP_RAIL_TIMEOUT"),
)


@pytest.mark.parametrize(
    ("env", "transport"),
    [
        ({}, "shm"),
        ({"PSP_SHM": "0"}, "tcp"),
        ({"PSP_TCP": "0"}, "shm"),
        ({"PSP_SHM": "0", **dict.fromkeys(TIMES, "inf")}, "tcp"),
        ({"PSP_SHM": "0", **dict.fromkeys(TIMES, "10000000000")}, "tcp"),
    ],
)
def test_a_ring_of_4_uses_the_best_transport(run, script, env, transport):
    for one in run_ring(run, 4, script, **env):
        neighbours = {str((one["rank"] + step) % 4) for step in (1, -1)}
        assert one["used"] == dict.fromkeys(neighbours, transport)
        assert transport in one["explained"]


def test_a_ring_under_mpiexec(mpiexec, script):
    assert [one["up"] for one in run_ring(mpiexec, 4, script)] == [2] * 4


def test_a_ring_of_32_makes_32_connections(run, script):
    told = run_ring(run, 32, script)
    assert len(told) == 32
    assert sum(one["up"] for one in told) == 2 * 32  # both ends count a connection
    assert sum(one["made"] for one in told) == 32


def test_a_ring_without_any_transport_fails_with_all_reasons(run, script):
    done = run("-n", 2, script(ring), env={"PSP_SHM": "0", "PSP_TCP": "0"})
    assert done.returncode == 1
    assert "ConnectError" in done.stderr
    assert "PSP_SHM=0" in done.stderr
    assert "PSP_TCP=0" in done.stderr


def test_ranks_with_different_keys_do_not_connect(run, script):
    def has_a_key_of_its_own():
        os.environ["PSP_KEY"] = "random:" + 64 * os.environ["PMI_RANK"]
        with pscompy.World() as world:
            try:
                world.send(b"", 1 - world.rank)
            except pscompy.AuthError:
                print("refused")

    done = run("-n", 2, script(has_a_key_of_its_own))
    assert done.stdout == "refused\n" * 2


# ---- ranks ----


def test_the_interface_of_a_world(run, script):
    def checks():
        with pscompy.World() as world:
            assert isinstance(world, pscompy.Communicator)
            assert not isinstance(world, pscompy.Session)
            assert len(world) == world.size == 3
            assert list(world) == [world[i] for i in range(3)]
            assert world[1] is world.connection(1)
            assert world.session.name == str(world.rank)
            assert f"rank {world.rank} of 3" in repr(world)
            uses = (
                world.__getitem__,
                lambda rank: world.send(b"", rank),
                lambda rank: world.irecv(source=rank),
            )
            for rank in (-1, 3, 10**30):
                for use in uses:
                    try:
                        use(rank)
                    except IndexError:
                        continue
                    raise AssertionError(rank)
            assert world.stats["connections_up"] == 0
            print(world.rank)

    assert run.lines(3, script(checks)) == ["0", "1", "2"]


def test_names_sort_as_ranks_do(run, script):
    def names():
        with pscompy.World() as world:
            print(world.session.name, world.rank)

    assert run.lines(12, script(names)) == [f"{rank:02} {rank}" for rank in range(12)]


def test_connections_and_ranks_are_two_names_for_the_same_peer(run, script):
    def uses_both():
        with pscompy.World() as world:
            other = 1 - world.rank
            world[other].send(b"a")
            world.send(b"b", other)
            assert bytes(world.recv(source=other)) == b"a"
            data, status = world[other].recv_status()
            assert (bytes(data), status.source) == (b"b", other)
            print("ok")

    assert run.lines(2, script(uses_both)) == ["ok", "ok"]


def test_no_launcher_means_a_world_of_one(run):
    with pscompy.World() as world:
        assert (world.rank, world.size, len(world)) == (0, 1, 1)
        world.send(b"to myself", dest=0)
        assert bytes(world.recv(source=0)) == b"to myself"
        world.barrier()
        other = world.dup()
        other.send(b"apart", dest=0)
        assert world.iprobe() is None
        assert bytes(other.recv()) == b"apart"


def test_a_duplicate_outlives_the_name_of_its_world():
    """The duplicate keeps the session open until it is closed or the process ends."""
    world = pscompy.World()
    other = world.dup()
    session = world.session
    del world
    gc.collect()
    other.send(b"to myself", dest=0)
    assert other.recv(source=0) == b"to myself"
    assert other.session is session
    session.close()
    with pytest.raises(pscompy.Closed):
        other.send(b"", dest=0)
    with pytest.raises(pscompy.Closed):
        other.dup()


def test_a_world_closes_its_session():
    with pscompy.World(config={"SPIN_US": 7}) as world:
        session = world.session
        assert session.config["SPIN_US"] == 7
        assert world.stats == session.stats
    with pytest.raises(pscompy.Closed):
        session.listen()
    world.close()  # closing twice is allowed


@pytest.mark.parametrize("root", [None, -1, 1])
def test_a_broadcast_has_a_root(root):
    with (
        pscompy.World() as world,
        pytest.raises(IndexError, match=f"rank {root} cannot be the root: ranks are 0 to 0"),
    ):
        world.broadcast(bytearray(1), root=root)


def test_the_root_of_a_broadcast_is_an_integer():
    with pscompy.World() as world:
        world.broadcast(bytearray(1), root=np.int64(0))
        with pytest.raises(TypeError, match="integer"):
            world.broadcast(bytearray(1), root=0.0)


def test_the_memory_of_a_communicator_is_its_sessions():
    with pscompy.World() as world:
        other = world.dup()
        array = other.empty(4096, "u1")
        block = other.allocate(1 << 16)
        other.isend(array, dest=0, lend=True)
        assert other.recv_view(source=0).nbytes == array.nbytes
        assert block.nbytes == 1 << 16
        with other.register(bytearray(8)) as region:
            assert region.rkey
        with other.pin(bytearray(8)) as pin:
            assert pin.nbytes == 8


def test_a_communicator_stays_in_its_process():
    with pscompy.World() as world:
        for each in (world, world.dup()):
            with pytest.raises(TypeError, match="stays in its process"):
                pickle.dumps(each)


def test_all_ranks_send_to_all_at_once(run, script):
    def sends_to_all():
        with pscompy.World() as world:
            others = range(world.size)
            receives = [world.irecv(source=r) for r in others]
            sends = [world.isend(bytes([world.rank]) * 70000, r) for r in others]
            got = pscompy.wait_all(receives)
            pscompy.wait_all(sends)
            assert [set(data) for data in got] == [{r} for r in others]
            print(world.stats["connections_up"])

    assert run.lines(8, script(sends_to_all)) == ["8"] * 8


def test_a_world_of_one_has_nothing_to_warn_of(run, script):
    def sends_to_itself():
        with pscompy.World() as world:
            world.send(b"to myself", 0)
            print(world.recv().decode())

    run.command = (sys.executable,)
    done = run(script(sends_to_itself), env={"PSP_DEBUG": "2"})
    assert (done.stdout, done.stderr) == ("to myself\n", "")


def sees_the_end_of_a_rank():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher ends all ranks when one fails
    with pscompy.World() as world:
        other = 1 - world.rank
        world.send(b"", other)
        world.recv(source=other)
        if world.rank:
            os.kill(os.getpid(), signal.SIGKILL)
        while world[other].state is pscompy.ConnectionState.UP:
            time.sleep(0.01)  # no call that makes progress
        os.write(1, f"{world[other].state.name}\n".encode())
        os._exit(0)


def test_the_end_of_a_rank_of_the_node_is_noticed_without_a_call(run, script):
    done = run.having(GRACE=100.0)("-n", 2, script(sees_the_end_of_a_rank))
    assert done.stdout == "FAILED\n"
