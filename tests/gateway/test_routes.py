"""Routes over several gateways and to several modules; the route file and its policies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import gate as the_gate
import pytest
from namespaces import PORT, finished
from pscompy_gateway import policies
from pscompy_gateway.cli import command
from pscompy_gateway.transport import servers

import pscompy
from tests.names import A_KEY
from tests.program import module


def sends_long_to_all():
    with pscompy.World() as world:
        the_gate.wait(world, *sys.argv[1:])
        data = os.urandom(300_000)
        sends = [world.isend(data, dest=rank) for rank in range(world.size)]
        got = [world.recv(source=rank) for rank in range(world.size)]
        pscompy.wait_all(sends)
        told = {
            "rank": world.rank,
            "modules": world.modules,
            "lengths": [len(one) for one in got],
            "transports": [world[rank].transport for rank in range(world.size)],
        }
        world.barrier()
        os.write(1, (json.dumps(told) + "\n").encode())


@pytest.mark.parametrize("machine", [(3, 2)], indirect=True)
def test_a_way_over_two_gateways(machine, script):
    """Gateway 1 serves modules 1 and 2, gateway 2 serves module 3; a network joins the gateways."""
    machine.link_gateways(1, 2)
    machine.start_gateway(1, f"tcp@10.200.0.1:{PORT}", modules=(1, 2))
    machine.start_gateway(
        2, f"--neighbour=10.200.0.1:{PORT}", f"tcp@10.200.0.2:{PORT}", modules=(3,)
    )
    served = {1: 1, 2: 1, 3: 2}
    there = {module: f"10.{module}.{served[module]}.9:{PORT}" for module in machine.modules}
    jobs = [
        machine.ranks(module, 2, script(sends_long_to_all), PSP_GW_SERVER=server)
        for module, server in there.items()
    ]
    told = [json.loads(line) for job in jobs for line in finished(job)[0].splitlines()]
    assert sorted(one["rank"] for one in told) == list(range(6))
    for one in told:
        assert one["modules"] == [1, 1, 2, 2, 3, 3]
        assert one["lengths"] == [300_000] * 6
        module = one["rank"] // 2
        far = [name for rank, name in enumerate(one["transports"]) if rank // 2 != module]
        assert far == ["gateway"] * 4
    # bytes between modules 1 and 2 on one side and module 3, each way
    over_both = 2 * 4 * 2 * 300_000
    assert machine.status(2, module=3)["counters"]["bytes"] >= over_both


FORMULAS = {
    "plugin01": lambda i, j, b, n: (i + j) % n,
    "plugin02": lambda i, j, b, n: (i + ((j - i) % b) % n) % n,
    "plugin03": lambda i, j, b, n: (i * b + j) % n,
}


@pytest.mark.parametrize("name", policies.OURS)
@pytest.mark.parametrize(("a", "b", "n"), [(1, 1, 1), (3, 5, 2), (8, 8, 4), (4, 2, 3)])
def test_static_policies_are_their_formulas(name, a, b, n, tmp_path):
    ours, theirs = [f"a{i}" for i in range(a)], [f"b{j}" for j in range(b)]
    gateways = [f"gw{k}:4470" for k in range(n)]
    file = tmp_path / "routes"
    file.write_text("\n".join(policies.route_file(policies.load(name), ours, theirs, gateways)))
    routes = servers.read(file)
    for i, node in enumerate(ours):
        for j, other in enumerate(theirs):
            index = routes.between({node}, {other, "another name"})
            assert routes.gateways[index] == gateways[FORMULAS[name](i, j, b, n)]
            assert routes.between({other}, {node}) == index


def test_a_policy_of_somebody_else_may_ask_for_names(tmp_path):
    def routeConnectionX(nodesA, nodesB, gateways, nodeA, nodeB):  # noqa: N802, N803
        return (None, gateways[-1]) if nodeA == "a1" else ("not for me", None)

    file = tmp_path / "mine.py"
    file.write_text(module(routeConnectionX))
    policy = policies.load(str(file))
    assert policy(["a0", "a1"], ["b"], ["g0", "g1"], 1, 0) == "g1"
    with pytest.raises(policies.NoRoute, match="a0 and b: not for me"):
        policy(["a0", "a1"], ["b"], ["g0", "g1"], 0, 0)
    with pytest.raises(policies.NoRoute, match="plugin01"):
        policies.load("nobody")


@pytest.mark.parametrize("text", ["gw:1 a", "gw a b", "gw:1 a b c", "gw:x a b", "gw:1, a b"])
def test_a_route_file_that_is_none(text, tmp_path):
    file = tmp_path / "routes"
    file.write_text(f"gw:1 a b\n# a comment\n\n{text}\n")
    with pytest.raises(servers.BadRoutes, match="line 4"):
        servers.parse(str(file))


@pytest.mark.parametrize("text", ["gw", "gw:x", "gw:1 other", "gw:1,other", ":1"])
def test_gateways_that_are_no_addresses(text):
    with pytest.raises(servers.BadRoutes, match="neither HOST:PORT nor a route file"):
        servers.parse(text)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read: .*No such file"),
        ("", "names no gateway"),
        ("# a comment\n", "names no gateway"),
        ("gw a b\n", "line 1: expected GATEWAY:PORT NODE_A NODE_B"),
        (b"\xff\xfe", "cannot be read: .*utf-8"),
    ],
)
def test_a_session_warns_of_a_server_file_that_it_cannot_use(tmp_path, content, reason):
    file = tmp_path / "routes"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    asked = rf"gateway is asked for by PSP_GATEWAY_SERVER={file} \(config PSP_GW_SERVER\)"
    with pytest.warns(pscompy.ConfigWarning, match=f"{asked}, and cannot be used: .*{reason}"):
        pscompy.Session(config={"GW_SERVER": file, "KEY": A_KEY}).close()


@pytest.mark.parametrize("server", ["   ", "routes", "gw:1 gw:x"])
def test_a_session_warns_of_servers_that_it_cannot_use(server):
    with pytest.warns(pscompy.ConfigWarning, match=r"gateway is asked for by .* cannot be used: "):
        pscompy.Session(config={"GW_SERVER": server, "KEY": A_KEY}).close()


def test_a_route_file_is_written_for_gateways_with_ports(capsys):
    arguments = ["routes", "plugin01", "--a", "one", "--b", "two", "--gateways"]
    assert command.main([*arguments, "gw:1,gw:2"]) == 0
    assert capsys.readouterr().out == "gw:1,gw:2 one two\n"
    with pytest.raises(SystemExit):
        command.main([*arguments, "gw"])
    assert "'gw' is not HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("neighbour", "gw", "'gw' is not HOST:PORT"),
        ("neighbour", "gw:65536", "'gw:65536' is not HOST:PORT"),
        ("neighbour", "gw:1,gw:2", "'gw:1,gw:2' is not one HOST:PORT"),
        ("memory", "auto", "'auto' is no size"),
        ("burden", "auto", "'auto' is no size"),
    ],
)
def test_an_option_with_another_value(capsys, option, value, reason):
    with pytest.raises(SystemExit):
        command.main(["run", f"--{option}", value, "tcp@no.host.invalid"])
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "warned"),
    [([], True), (["tcp@127.0.0.1:0"], False), (["--neighbour", "no.host.invalid:1"], False)],
)
def test_a_gateway_with_one_network_warns(more, warned):
    """SIGINT, which a shell without job control ignores for its background, does not end it."""
    gateway = subprocess.Popen(
        [sys.executable, "-m", "pscompy_gateway", "run", "tcp@127.0.0.1:0", *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PSP_KEY": A_KEY},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    try:
        if "--neighbour" not in more:
            assert "serves" in gateway.stdout.readline()
            gateway.send_signal(signal.SIGINT)
            assert gateway.poll() is None
            gateway.terminate()
        _, err = gateway.communicate(timeout=100)
    finally:
        gateway.kill()
    assert ("tcp@127.0.0.1:0 is the only network, and there is no --neighbour" in err) == warned


@pytest.mark.parametrize("host", ["no.host.invalid", "no..host"])
def test_a_neighbour_that_is_nowhere(capsys, monkeypatch, host):
    monkeypatch.setenv("PSP_KEY", A_KEY)
    assert command.main(["run", "--neighbour", f"{host}:1", "tcp@127.0.0.1:0"]) == 1
    assert f"the neighbour {host}:1 cannot be reached: " in capsys.readouterr().err


@pytest.mark.parametrize("machine", [(2, 2)], indirect=True)
def test_a_route_file_chooses_the_gateway(machine, script, gate, tmp_path):
    for number in machine.gateways:
        machine.start_gateway(number)
    gateways = [f"10.1.{number}.9:{PORT},10.2.{number}.9:{PORT}" for number in machine.gateways]
    nodes = ("10.1.1.1", "10.2.1.1")
    file = tmp_path / "routes"
    file.write_text(f"{gateways[0]} nobody {nodes[0]}\n{gateways[1]} {nodes[0]} {nodes[1]}\n")
    second = machine.ranks(2, 2, script(sends_long_to_all), gate.path, PSP_GW_SERVER=file)
    first = machine.ranks(1, 2, script(sends_long_to_all), gate.path, PSP_GW_SERVER=file)
    gate.let_through(4)
    finished(first)
    finished(second)
    carried = [machine.status(number)["counters"]["bytes"] for number in machine.gateways]
    assert carried[0] == 0
    assert carried[1] >= 2 * 4 * 300_000


def sends_short_to_all():
    with pscompy.World() as world:
        the_gate.wait(world, sys.argv[1])
        half = world.size // 2
        far = [rank for rank in range(world.size) if (rank < half) != (world.rank < half)]
        for _ in range(20):
            sends = [world.isend(bytes(3000), dest=rank) for rank in far]
            for rank in far:
                world.recv(source=rank)
            pscompy.wait_all(sends)


@pytest.mark.parametrize("machine", [(2, 4)], indirect=True)
def test_gateways_share_what_all_send_to_all(machine, script, gate):
    """Each stream of short messages keeps to one gateway, so the streams must spread over the
    gateways; long messages are always spread."""
    ranks = 8
    for number in machine.gateways:
        machine.start_gateway(number)
    second = machine.ranks(2, ranks, script(sends_short_to_all), gate.path)
    first = machine.ranks(1, ranks, script(sends_short_to_all), gate.path)
    gate.let_through(2 * ranks)
    finished(first)
    finished(second)
    carried = [machine.status(number)["counters"]["bytes"] for number in machine.gateways]
    assert sum(carried) > 2 * ranks * ranks * 20 * 3000
    assert max(carried) <= 1.3 * sum(carried) / len(carried)


@pytest.mark.parametrize("machine", [(2, 2)], indirect=True)
@pytest.mark.parametrize("program", [sends_short_to_all, sends_long_to_all], ids=["short", "long"])
def test_a_gateway_with_a_high_load_gets_less(machine, script, gate, program):
    machine.start_gateway(1, "--burden=64M")
    machine.start_gateway(2)
    second = machine.ranks(2, 2, script(program), gate.path)
    first = machine.ranks(1, 2, script(program), gate.path)
    gate.let_through(4)
    finished(first)
    finished(second)
    loaded, other = (machine.status(number) for number in machine.gateways)
    assert loaded["load"]["bytes"] >= 64 << 20
    assert 10 * loaded["counters"]["bytes"] < other["counters"]["bytes"]
