"""PSP_ONDEMAND=0: a World connects to all ranks when it opens, or says to which it cannot."""

from __future__ import annotations

import os

import pytest

import pscompy

ALL = {"PSP_ONDEMAND": "0"}
TOLD = "PSP_ONDEMAND=0 connects to all ranks, and "


def prints_what_is_up():
    """Before its first message, a rank prints its number of connections that are up."""
    with pscompy.World() as world:
        up = sum(connection.state is pscompy.ConnectionState.UP for connection in world)
        transports = {world[rank].transport for rank in range(world.size) if rank != world.rank}
        line = f"{world.stats['sent_messages']} sent, {up} up over {'+'.join(sorted(transports))}\n"
        os.write(1, line.encode())
        requests = [world.isend(bytes([rank]), dest=rank) for rank in range(world.size)]
        assert [bytes(world.recv(source=rank)) for rank in range(world.size)] == [
            bytes([world.rank])
        ] * world.size
        pscompy.wait_all(requests)


@pytest.mark.parametrize(
    ("env", "transport"),
    [({}, "shm"), ({"PSP_SHM": "0"}, "tcp"), ({"PSP_GUARD": "0", "PSP_SHM": "0"}, "tcp")],
)
@pytest.mark.parametrize("n", [2, 7])
def test_all_connections_are_up_before_the_first_message(run, script, n, env, transport):
    lines = run.lines(n, script(prints_what_is_up), **ALL, **env)
    assert lines == [f"0 sent, {n} up over {transport}"] * n


def test_all_connections_are_up_under_mpiexec(mpiexec, script):
    lines = mpiexec.lines(3, *mpiexec.python(script(prints_what_is_up)), **ALL)
    assert lines == ["0 sent, 3 up over shm"] * 3


def test_without_it_no_connection_is_up(run, script):
    assert run.lines(3, script(prints_what_is_up)) == ["0 sent, 0 up over "] * 3


def test_a_world_of_one_is_connected_to_itself():
    with pscompy.World(config={"ONDEMAND": 0}) as world:
        assert world[0].state is pscompy.ConnectionState.UP


@pytest.mark.parametrize("env", [{}, {"PSP_SHM": "0"}])
def test_one_rank_may_ask_for_it_alone(run, script, env):
    def asks_on_rank_1():
        rank = int(os.environ["PMI_RANK"])
        with pscompy.World(config={"ONDEMAND": int(rank != 1)}) as world:
            print(all(it.state is pscompy.ConnectionState.UP for it in world) or rank)

    assert run.lines(3, script(asks_on_rank_1), **env) == ["0", "2", "True"]


def fails(**config):
    try:
        pscompy.World(config=config)
    except pscompy.PscomError as error:
        os.write(1, f"{type(error).__name__}: {error}\n".encode())


def test_no_transport_is_an_error_that_names_rank_and_variable(run, script):
    lines = run.lines(2, script(fails, SHM=0, TCP=0, PORTALS=0), **ALL)
    for rank, line in enumerate(lines):
        assert line.startswith(f"ConnectError: {TOLD}rank {rank} cannot be reached: ")
        assert "PSP_TCP=0" in line


def test_a_rank_with_another_key_is_an_error_that_names_it(run, script):
    def has_another_key():
        if os.environ["PMI_RANK"] == "1":
            os.environ["PSP_KEY"] = "random:" + 64 * "1"
        fails()

    lines = run.lines(2, script(has_another_key), **ALL)
    for rank, line in enumerate(lines):
        assert line.startswith(f"AuthError: {TOLD}rank {rank} cannot be reached: ")


def test_a_rank_that_has_left_is_an_error_that_names_it(run, script):
    def leaves_early():
        if os.environ["PMI_RANK"] == "1":
            with pscompy.World(config={"ONDEMAND": 1}):
                os._exit(0)
        fails()

    done = run("-n", 2, script(leaves_early), env={**ALL, "PSP_RETRY": "1"})
    assert done.returncode == 0
    assert f"{TOLD}rank 1 cannot be reached: " in done.stdout
