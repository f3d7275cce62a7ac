"""World, tested by real jobs of several ranks."""

from __future__ import annotations

import gc
import json
import pickle
import signal
import sys

import pytest

import pscompy
from tests.waiting import STAYS, waits_until

HEAD = """\
import asyncio, json, os, sys, threading, time
import pscompy
"""


def all_wrote(sign, ranks):
    """A condition that is true when each of these ranks has left its file beside the program."""
    return f"all(os.path.exists({sign} + n) for n in '{ranks}')"


RING = (
    HEAD
    + """\
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
    os.write(1, (json.dumps(told) + "\\n").encode())  # mpiexec cuts lines at every write
"""
)


def run_ring(launch, n, script, **env):
    done = launch("-n", n, *launch.before_program, sys.executable, script(RING), env=env)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return sorted(told, key=lambda one: one["rank"])


def run_code(run, n, script, text, **env):
    done = run("-n", n, script(HEAD + text), env=env)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return sorted(done.stdout.splitlines())


# ---- a ring ----


@pytest.mark.parametrize(
    ("env", "transport"), [({}, "shm"), ({"PSP_SHM": "0"}, "tcp"), ({"PSP_TCP": "0"}, "shm")]
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
    done = run("-n", 2, script(RING), env={"PSP_SHM": "0", "PSP_TCP": "0"})
    assert done.returncode == 1
    assert "ConnectError" in done.stderr
    assert "PSP_SHM=0" in done.stderr
    assert "PSP_TCP=0" in done.stderr


def test_ranks_with_different_keys_do_not_connect(run, script):
    text = HEAD + (
        "os.environ['PSP_KEY'] = 'random:' + 64 * os.environ['PMI_RANK']\n"
        "with pscompy.World() as world:\n"
        "    try: world.send(b'', 1 - world.rank)\n"
        "    except pscompy.AuthError: print('refused')\n"
    )
    done = run("-n", 2, script(text))
    assert done.stdout == "refused\n" * 2


# ---- ranks ----


def test_the_interface_of_a_world(run, script):
    text = (
        "with pscompy.World() as world:\n"
        "    assert isinstance(world, pscompy.Communicator)\n"
        "    assert not isinstance(world, pscompy.Session)\n"
        "    assert len(world) == world.size == 3\n"
        "    assert list(world) == [world[i] for i in range(3)]\n"
        "    assert world[1] is world.connection(1)\n"
        "    assert world.session.name == str(world.rank)\n"
        "    assert f'rank {world.rank} of 3' in repr(world)\n"
        "    for rank in (-1, 3, 10**30):\n"
        "        for use in (world.__getitem__, lambda r: world.send(b'', r),\n"
        "                    lambda r: world.irecv(source=r)):\n"
        "            try: use(rank)\n"
        "            except IndexError: continue\n"
        "            raise AssertionError(rank)\n"
        "    assert world.stats['connections_up'] == 0\n"
        "    print(world.rank)\n"
    )
    assert run_code(run, 3, script, text) == ["0", "1", "2"]


def test_names_sort_as_ranks_do(run, script):
    text = "with pscompy.World() as world: print(world.session.name, world.rank)\n"
    assert run_code(run, 12, script, text) == [f"{rank:02} {rank}" for rank in range(12)]


def test_connections_and_ranks_are_two_names_for_the_same_peer(run, script):
    text = (
        "with pscompy.World() as world:\n"
        "    other = 1 - world.rank\n"
        "    world[other].send(b'a'); world.send(b'b', other)\n"
        "    assert bytes(world.recv(source=other)) == b'a'\n"
        "    data, status = world[other].recv_status()\n"
        "    assert bytes(data) == b'b' and status.source == other\n"
        "    print('ok')\n"
    )
    assert run_code(run, 2, script, text) == ["ok", "ok"]


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
    text = (
        "with pscompy.World() as world:\n"
        "    others = range(world.size)\n"
        "    receives = [world.irecv(source=r) for r in others]\n"
        "    sends = [world.isend(bytes([world.rank]) * 70000, r) for r in others]\n"
        "    got = pscompy.wait_all(receives)\n"
        "    pscompy.wait_all(sends)\n"
        "    assert [set(data) for data in got] == [{r} for r in others]\n"
        "    print(world.stats['connections_up'])\n"
    )
    assert run_code(run, 8, script, text) == ["8"] * 8


def test_a_world_of_one_has_nothing_to_warn_of(run, script):
    text = HEAD + (
        "with pscompy.World() as world:\n"
        "    world.send(b'to myself', 0)\n"
        "    print(world.recv().decode())\n"
    )
    run.command, run.before_program = (sys.executable,), ()
    done = run(script(text), env={"PSP_DEBUG": "2"})
    assert (done.stdout, done.stderr) == ("to myself\n", "")


# ---- collective calls ----


def test_nobody_passes_a_barrier_before_all_have_come(run, script):
    text = (
        "with pscompy.World() as world:\n"
        "    for late in range(world.size):\n"
        # most likely the other ranks are in the barrier by then
        "        if world.rank == late: time.sleep(0.1)\n"
        "        came = time.monotonic()\n"
        "        world.barrier()\n"
        "        print(late, came, time.monotonic())\n"
    )
    lines = [line.split() for line in run_code(run, 5, script, text)]
    for late in "01234":
        came = [float(c) for n, c, _ in lines if n == late]
        passed = [float(p) for n, _, p in lines if n == late]
        assert len(came) == 5
        assert max(came) <= min(passed)


def test_a_barrier_that_timed_out_goes_on(run, script):
    """Rank 0 enters the barrier only after the other ranks have timed out."""
    text = (
        "with pscompy.World() as world:\n"
        "    waited = __file__ + ' waited '\n"
        "    if world.rank == 0:\n"
        f"        {waits_until(all_wrote('waited', '12'))}"
        "        world.barrier(timeout=100)\n"
        "        print('passed')\n"
        "    else:\n"
        "        try: world.barrier(timeout=0.1)\n"
        "        except pscompy.Timeout as error:\n"
        "            open(f'{waited}{world.rank}', 'w').close()\n"
        "            error.request.wait(100)\n"
        "            print('waited on')\n"
        "    world.barrier(timeout=100)\n"
    )
    lines = run_code(run, 3, script, text)
    assert lines == ["passed", "waited on", "waited on"]


def test_barriers_are_awaited_and_may_overlap(run, script):
    text = (
        "async def main():\n"
        "    async with pscompy.World() as world:\n"
        "        other = world.dup()\n"
        "        for _ in range(20):\n"
        "            await asyncio.gather(world.ibarrier(), other.ibarrier(), world.ibarrier())\n"
        "asyncio.run(main())\n"
        "print('ok')\n"
    )
    assert run_code(run, 4, script, text) == ["ok"] * 4


def test_barriers_do_not_touch_messages(run, script):
    text = (
        "with pscompy.World() as world:\n"
        "    world.isend(b'mine', (world.rank + 1) % world.size)\n"
        "    for _ in range(3): world.barrier()\n"
        "    assert bytes(world.recv()) == b'mine'\n"
        "    assert world.iprobe() is None\n"
        "    print('ok')\n"
    )
    assert run_code(run, 3, script, text) == ["ok"] * 3


def test_duplicates_keep_their_messages_apart(run, script):
    text = (
        "with pscompy.World() as world:\n"
        "    worlds = [world, world.dup(), world.dup()]\n"
        "    worlds.append(worlds[1].dup())\n"
        "    after, before = (world.rank + 1) % world.size, (world.rank - 1) % world.size\n"
        "    requests = [w.isend(bytes([i]), after) for i, w in enumerate(worlds)]\n"
        "    for i, w in reversed(list(enumerate(worlds))):\n"
        "        data, status = w.recv_status()\n"
        "        assert (bytes(data), status.source) == (bytes([i]), before), (i, data)\n"
        "        w[before].irecv().cancel()\n"
        "    pscompy.wait_all(requests)\n"
        "    assert type(worlds[3]) is pscompy.Communicator and len(worlds[3]) == world.size\n"
        "    contexts = sorted({w._context.number for w in worlds})\n"
        "    print(contexts, world.stats['connections_up'] <= 4)\n"
    )
    lines = run_code(run, 5, script, text)
    assert len(set(lines)) == 1
    assert lines[0].endswith("] True")
    assert lines[0].count(",") == 3


def test_abort_ends_the_job(run, script):
    text = HEAD + (
        "with pscompy.World() as world:\n"
        "    print('said', world.rank)\n"
        "    if world.rank == 1: world.abort(6)\n"
        f"    {STAYS}\n"
    )
    done = run("-n", 3, script(text))
    assert done.returncode == 6
    assert "said 1" in done.stdout
    assert "rank 1 aborted the job with code 6" in done.stderr


# ---- the end ----


def test_what_was_sent_before_the_end_arrives(run, script):
    """Rank 1 is already closing while rank 0 still needs rank 1's progress to receive the last
    message."""
    text = (
        "with pscompy.World() as world:\n"
        "    if world.rank == 1:\n"
        "        for size in (10, 100_000, 20_000_000):\n"
        "            world.isend(b'x' * size, 0)\n"
        "    else:\n"
        "        time.sleep(0.5)\n"  # most likely rank 1 is closing by then
        "        print([len(world.recv(source=1)) for _ in range(3)])\n"
    )
    assert run_code(run, 2, script, text) == ["[10, 100000, 20000000]"]


def test_an_exception_does_not_wait_for_others(run, script):
    text = HEAD + (
        "with pscompy.World() as world:\n"
        "    if world.rank == 1: raise ValueError('mine')\n"
        f"    {STAYS}\n"
    )
    done = run("-n", 3, script(text))
    assert done.returncode == 1
    assert "ValueError: mine" in done.stderr
    assert "rank 1 exited with code 1" in done.stderr


def test_ctrl_c_ends_the_wait_for_others(run, script):
    text = HEAD + (
        "with pscompy.World() as world:\n"
        "    world.barrier()\n"
        "    print('ready', flush=True)\n"
        f"    if world.rank == 0: {STAYS}\n"
    )
    process = run.start("-n", 6, script(text))
    for _ in range(6):
        assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=100)
    assert process.returncode == 128 + signal.SIGINT
    assert err.count("KeyboardInterrupt") >= 1


@pytest.mark.parametrize("how", ["world.close()", "os._exit(0)"])
def test_the_wait_for_a_rank_that_does_not_come_is_bounded(run, script, how):
    text = HEAD + (
        "with pscompy.World() as world:\n"
        "    ended = __file__ + ' ended '\n"
        "    world.barrier()\n"
        "    if world.rank == 2:\n"
        f"        {how}\n"
        f"        {waits_until(all_wrote('ended', '01'))}"
        "    print('end', flush=True)\n"
        "open(f'{ended}{world.rank}', 'w').close()\n"
    )
    done = run("-n", 3, script(text), env={"PSP_FINALIZE_TIMEOUT": "1", "PSP_DEBUG": "2"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("end") >= 2
    if "close" in how:
        assert "has not seen all ranks end within 1 s" in done.stderr


@pytest.mark.parametrize("launcher", ["run", "mpiexec"])
def test_a_process_may_open_one_world_after_another(request, launcher, script):
    launch = request.getfixturevalue(launcher)
    text = HEAD + (
        "for turn in range(3):\n"
        "    with pscompy.World() as world:\n"
        "        world.send(bytes([turn]), (world.rank + 1) % world.size)\n"
        "        assert bytes(world.recv()) == bytes([turn])\n"
        "os.write(1, b'ok\\n')\n"
    )
    done = launch("-n", 3, *launch.before_program, sys.executable, script(text))
    assert (done.returncode, done.stdout) == (0, "ok\n" * 3), done.stderr


@pytest.mark.parametrize("launcher", ["run", "mpiexec"])
@pytest.mark.parametrize("first", ["MPI", "World"])
def test_mpi_and_a_world_in_one_process(request, launcher, first, script):
    pytest.importorskip("mpi4py", reason="no mpi4py: pip install mpi4py mpich")
    launch = request.getfixturevalue(launcher)
    load = "    from mpi4py import MPI\n"
    text = HEAD + (
        ("if True:\n" + load if first == "MPI" else "")
        + "with pscompy.World() as world:\n"
        + load
        + "    world.send(b'x', (world.rank + 1) % world.size)\n"
        "    assert bytes(world.recv()) == b'x'\n"
        "    assert MPI.COMM_WORLD.allreduce(world.rank) == 3\n"
        "    assert MPI.COMM_WORLD.rank == world.rank\n"
    )
    done = launch("-n", 3, *launch.before_program, sys.executable, script(text))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_child_of_a_rank_is_no_rank(run, script):
    text = (
        "import multiprocessing\n"
        "def child():\n"
        "    try: pscompy.World()\n"
        "    except pscompy.ConfigError as error: print(error)\n"
        "    with pscompy.Session() as session: print(bool(session.listen().address))\n"
        "with pscompy.World() as world:\n"
        "    process = multiprocessing.get_context('fork').Process(target=child)\n"
        "    process.start(); process.join()\n"
        "    world.barrier()\n"
    )
    lines = run_code(run, 2, script, text)
    assert [line[:32] for line in lines] == ["True"] * 2 + ["this process was forked from ran"] * 2


def test_a_rank_that_computes_is_connected_to(run, script):
    text = (
        "with pscompy.World() as world:\n"
        "    world.barrier() if world.size == 1 else None\n"
        "    if world.rank == 0:\n"
        "        while not os.path.exists(__file__ + ' sent'): pass\n"
        "        print(bytes(world.recv(source=1)))\n"
        "    else:\n"
        "        world.send(b'meanwhile', 0)\n"
        "        open(__file__ + ' sent', 'w').close()\n"
    )
    assert run_code(run, 2, script, text) == ["b'meanwhile'"]
