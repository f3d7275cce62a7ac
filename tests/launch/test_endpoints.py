"""Endpoints: communicators with workers of their own, for threads and event loops; by real jobs."""

from __future__ import annotations

import asyncio
import os
import resource
import struct
import sys
import threading
import time
from collections import Counter

import pytest

import pscompy
from pscompy.control.progress import Progress

MESSAGES = int(os.environ.get("PSCOMPY_TEST_ENDPOINT_MESSAGES", "200"))
CATEGORIES = ("dynamic", "shared", "single")
SHM, TCP = {}, {"PSP_SHM": "0"}

HEAD = struct.Struct("<III")  # sender, endpoint, number
LENGTHS = (0, 8, 1000, 70_000)  # of what follows the head


def in_threads(work, endpoints):
    """Call work(k, endpoint) in a thread for each; the first exception is raised here."""
    failed = []

    def guarded(k):
        try:
            work(k, endpoints[k])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(k,)) for k in range(len(endpoints))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def body(sender, k, number):
    return bytes([(sender + 3 * k + number) % 256]) * LENGTHS[number % len(LENGTHS)]


def exchange(k, endpoint, numbers, expected):
    """Send messages with these numbers to all other ranks, and check that theirs arrive in order,
    each with its contents. `expected` has the next numbers, by the senders."""
    others = [rank for rank in range(endpoint.size) if rank != endpoint.rank]
    sent = []
    for number in numbers:
        message = HEAD.pack(endpoint.rank, k, number) + body(endpoint.rank, k, number)
        sent += [endpoint.isend(message, other, tag=1) for other in others]
        for _ in others:
            check(k, endpoint, expected)
        if number % 64 == 63:
            for request in sent:
                request.wait()
            sent.clear()
    for request in sent:
        request.wait()


def check(k, endpoint, expected):
    data, status = endpoint.recv_status(source=pscompy.ANY_SOURCE, tag=1)
    number = expected[status.source]
    assert HEAD.unpack_from(data) == (status.source, k, number)
    assert data[HEAD.size :] == body(status.source, k, number)
    expected[status.source] += 1


def storm(threads, messages):
    with pscompy.World() as world:
        endpoints = world.endpoints(threads)
        in_threads(lambda k, it: exchange(k, it, range(messages), Counter()), endpoints)
        print(world.rank, world.stats["workers"])


@pytest.mark.parametrize("env", [SHM, TCP], ids=["shm", "tcp"])
def test_8_threads_and_all_peers(run, script, env):
    lines = run.lines(5, *run.python(script(storm, 8, MESSAGES)), **env)
    assert lines == [f"{rank} 9" for rank in range(5)]


@pytest.mark.parametrize("category", CATEGORIES)
def test_threads_that_share_workers(run, script, category):
    lines = run.lines(2, *run.python(script(storm, 5, 50)), PSP_ENDPOINTS=category)
    workers = {"dynamic": 6, "shared": 4, "single": 1}[category]
    assert lines == [f"{rank} {workers}" for rank in range(2)]


# ---- who shares what ----


def print_sharing():
    with pscompy.World() as world:
        before = world.stats["workers"]
        peer = 1 - world.rank
        endpoints = world.endpoints(3)
        for endpoint in endpoints:
            endpoint[peer].open()
        world.barrier()
        if world.rank == 0:
            print("0", before, *(it.session.stats["workers"] for it in endpoints))
            for k, endpoint in enumerate(endpoints, 1):
                explained = endpoint[peer].explain()
                assert f"worker: of {explained.worker}" in str(explained)
                shown = repr(endpoint.session)
                assert (explained.worker in shown) == ("endpoint" in explained.worker), shown
                print(k, explained.as_dict()["worker"])


@pytest.mark.parametrize(
    ("category", "told"),
    [
        ("dynamic", ["0 1 1 1 1", "1 endpoint 0", "2 endpoint 1", "3 endpoint 2"]),
        ("shared", ["0 1 1 1 1", *(f"{k} endpoints 0 and 1" for k in (1, 2)), "3 endpoint 2"]),
        ("single", ["0 1 1 1 1", *(f"{k} all communicators without their own" for k in (1, 2, 3))]),
    ],
)
def test_what_is_shared_is_told(run, script, category, told):
    assert run.lines(2, *run.python(script(print_sharing)), PSP_ENDPOINTS=category) == told


def use_wildcards():
    with pscompy.World() as world:
        peer = 1 - world.rank
        first, second = world.endpoints(2)
        request = first.irecv(source=pscompy.ANY_SOURCE, tag=pscompy.ANY_TAG)
        for other in (world, second, first.dup()):
            other.send(b"not for the endpoint", peer)
        world.barrier()
        assert not request.done()
        first.send(b"for it", peer, tag=9)
        assert bytes(request.wait()) == b"for it"
        assert request.status == (peer, 9, 6)
        second.barrier()
        print(first.endpoints(1)[0].size, second.endpoints(1)[0].rank)


def test_a_receive_matches_its_endpoint_only(run, script):
    assert run.lines(2, *run.python(script(use_wildcards))) == ["2 0", "2 1"]


def duplicate_in_threads(threads, rounds):
    """All threads call `dup` or `endpoints` at once, those of rank 1 at times in turn, in another
    order."""
    with pscompy.World() as world:
        made = [None] * threads

        def duplicate(k, communicator):
            made[k] = communicator.dup() if number % 4 < 2 else communicator.endpoints(1)[0]

        for parents in ([world.dup() for _ in range(threads)], world.endpoints(threads)):
            for number in range(rounds):
                if world.rank == 1 and number % 2:
                    for k in reversed(range(threads)):
                        duplicate(k, parents[k])
                else:
                    in_threads(duplicate, parents)
                # not in the order of the receives, which would take messages of equal contexts
                sent = [made[k].isend(b"%d" % k, dest=0) for k in reversed(range(threads))]
                for k, it in enumerate(made if world.rank == 0 else ()):
                    for source in range(world.size):
                        assert it.recv(source=source, timeout=60) == b"%d" % k
                for request in sent:
                    request.wait()


@pytest.mark.parametrize(("mode", "rounds"), [("single", 20), ("dynamic", 4)])
def test_threads_duplicate_different_communicators(run, script, mode, rounds):
    code = script(duplicate_in_threads, 3, rounds)
    assert run.lines(3, *run.python(code), PSP_ENDPOINTS=mode) == []


def close_in_a_callback():
    with pscompy.World() as world:
        (endpoint,) = world.endpoints(1)
        closer = threading.Thread(target=world.close)

        def close(request):
            closer.start()
            while not world.session._closing:
                time.sleep(0.001)
            world.close()

        request = endpoint.irecv()
        request.add_done_callback(close)
        endpoint.session.close()
        closer.join()


def test_threads_close_a_world_and_its_endpoint(run, script):
    """The callback of one `close` calls the other, which waits for the first one."""
    assert run.lines(1, *run.python(script(close_in_a_callback))) == []


def use_nested():
    with pscompy.World() as world:
        peer = 1 - world.rank
        nested = world.endpoints(2)[1].endpoints(1)[0]
        nested.send(b"from an endpoint of an endpoint", peer)
        print(bytes(nested.recv(source=peer, timeout=60)).decode())


@pytest.mark.parametrize("variables", [SHM, TCP])
def test_endpoints_of_endpoints(run, script, variables):
    lines = run.lines(2, *run.python(script(use_nested)), **variables)
    assert lines == ["from an endpoint of an endpoint"] * 2


def fail_on_one_rank():
    with pscompy.World() as world:
        world.barrier()  # they are connected
        limits, used = resource.getrlimit(resource.RLIMIT_NOFILE), len(os.listdir("/proc/self/fd"))
        if world.rank == 1:
            resource.setrlimit(resource.RLIMIT_NOFILE, (used, limits[1]))
        try:
            world.endpoints(2)
        except pscompy.PscomError as error:
            print(world.rank, "another rank" in str(error))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        print(world.endpoints(1)[0].rank)


def test_one_rank_without_descriptors_fails_on_all(run, script):
    expected = ["0", "0 True", "1", "1 False"]
    assert sorted(run.lines(2, *run.python(script(fail_on_one_rank)))) == expected


def fail_to_begin():
    with pscompy.World() as world:
        begin = Progress.start
        world.barrier()  # they are connected
        descriptors = len(os.listdir("/proc/self/fd"))

        def fail(self):
            begin(self)
            raise OSError("on purpose")

        if world.rank == 1:
            Progress.start = fail
        try:
            world.endpoints(2)
        except (pscompy.PscomError, OSError) as error:
            print(world.rank, error)
        Progress.start = begin
        print(world.rank, world.stats["workers"], len(os.listdir("/proc/self/fd")) - descriptors)
        endpoint = world.endpoints(1)[0]
        endpoint.barrier()


def test_a_worker_that_cannot_begin_fails_on_all(run, script):
    lines = run.lines(2, *run.python(script(fail_to_begin)))
    told = ["0 another rank could not make its endpoints", "1 on purpose"]
    assert sorted(lines) == sorted([*told, "0 1 0", "1 1 0"])


def leave_at_once():
    with pscompy.World() as world:
        endpoint = world.endpoints(1)[0]
        if world.rank == 0:
            endpoint.isend(bytes(8 << 20), 1)  # a rendezvous
        else:
            time.sleep(0.3)
            print(len(endpoint.recv(source=0)))


@pytest.mark.parametrize("variables", [SHM, TCP])
def test_messages_of_endpoints_move_while_the_world_ends(run, script, variables):
    variables = {**variables, "PSP_FINALIZE_TIMEOUT": "30"}
    assert run.lines(2, *run.python(script(leave_at_once)), **variables) == [str(8 << 20)]


def pass_memory():
    with pscompy.World() as world:
        peer = 1 - world.rank
        endpoint = world.endpoints(1)[0]
        lent = endpoint.empty(100_000, "u1")
        lent[:] = world.rank + 1
        request = endpoint.isend(lent, peer, lend=True)
        view = endpoint[peer].recv_view()
        assert set(bytes(view)) == {peer + 1}
        del view
        request.wait()
        memory = bytearray(8)
        with endpoint.register(memory) as region:
            endpoint.send_obj(region.rkey, peer)
            endpoint[peer].put(b"written!", endpoint.recv_obj(peer))
            endpoint.barrier()
        print(memory.decode())


def test_memory_of_an_endpoint(run, script):
    assert run.lines(2, *run.python(script(pass_memory))) == ["written!"] * 2


def disagree():
    with pscompy.World() as world:
        with pytest.raises(ValueError, match="disagree about the number of endpoints"):
            world.endpoints(2 + world.rank)
        with pytest.raises(ValueError, match="1 to"):
            world.endpoints(0)
        print(world.stats["workers"], len(world.endpoints(2)))


def test_ranks_that_disagree(run, script):
    assert run.lines(2, *run.python(script(disagree))) == ["1 2"] * 2


# ---- event loops ----


async def echo(endpoint, peer, number):
    for i in range(number):
        await endpoint.isend(b"%d" % i, peer)
        assert bytes(await endpoint.irecv(source=peer)) == b"%d" % i


def loops():
    with pscompy.World() as world:
        peer = 1 - world.rank
        endpoints = world.endpoints(3)
        in_threads(lambda k, endpoint: asyncio.run(echo(endpoint, peer, 100)), endpoints)
        print("all")


def test_an_event_loop_for_each_endpoint(run, script):
    assert run.lines(2, *run.python(script(loops, uses=[in_threads, echo]))) == ["all"] * 2


# ---- ends ----


def hand_on():
    with pscompy.World() as world:
        peer = 1 - world.rank
        endpoint = world.endpoints(1)[0]
        left = []

        def begin():
            left.append(endpoint.irecv(source=peer, tag=1))
            left.append(endpoint.isend(bytes(300_000), peer, tag=1))

        thread = threading.Thread(target=begin)
        thread.start()
        thread.join()
        assert len(left[0].wait()) == 300_000
        left[1].wait()
        endpoint.send(b"from another thread", peer)
        print(bytes(endpoint.recv(source=peer)).decode())


def test_a_thread_that_ends_leaves_its_endpoint_to_others(run, script):
    assert run.lines(2, *run.python(script(hand_on))) == ["from another thread"] * 2


def close_one(messages):
    with pscompy.World() as world:
        peer = 1 - world.rank
        endpoints = world.endpoints(4)
        closed = endpoints.pop()
        waiting = closed.irecv(source=peer)
        both_wait = threading.Barrier(len(endpoints) + 1)

        def work(k, endpoint):
            expected = Counter()
            exchange(k, endpoint, range(messages), expected)
            both_wait.wait(60)
            exchange(k, endpoint, range(messages, 2 * messages), expected)

        def close():
            both_wait.wait(60)
            closed.session.close()

        closing = threading.Thread(target=close)
        closing.start()
        in_threads(work, endpoints)
        closing.join()
        for use in (lambda: closed.send(b"", peer), waiting.wait, lambda: closed.stats):
            with pytest.raises((pscompy.Closed, pscompy.PeerLost)):
                use()
        world.barrier()
        print(world.stats["workers"])


def test_an_endpoint_that_is_closed_while_others_send(run, script):
    program = script(close_one, 100)
    assert run.lines(2, *run.python(program)) == ["4"] * 2
    assert run.lines(2, *run.python(program), **TCP) == ["4"] * 2


def use_what_the_peer_has_closed():
    with pscompy.World() as world:
        endpoint = world.endpoints(1)[0]
        if world.rank == 0:
            endpoint.session.close()
            world.barrier()
        else:
            world.barrier()
            with pytest.raises(pscompy.PscomError) as raised:
                endpoint[0].open(timeout=60)
            print(type(raised.value).__name__)


def test_a_peer_that_has_closed_its_endpoint_is_no_peer(run, script):
    told = run.lines(2, *run.python(script(use_what_the_peer_has_closed)), **TCP)
    assert told == ["ConnectError"]


def count_what_was_sent():
    with pscompy.World() as world:
        peer = 1 - world.rank
        outer = world.endpoints(2)
        inner = outer[1].endpoints(1)[0]
        for endpoint in (world, *outer, inner):
            endpoint.isend(bytes(1000), peer)
            endpoint.recv(source=peer)
            world.barrier()
        names = ("sent_bytes", "received_messages", "connections_up")
        before = [world.stats[name] for name in names]
        for endpoint in (outer[0], inner, outer[1]):
            endpoint.session.close()
            after = [world.stats[name] for name in names]
            assert all(new >= old for new, old in zip(after, before, strict=True)), (before, after)
            print(world.rank, world.stats["workers"])
        assert before[0] >= 4000


def test_what_closed_endpoints_have_counted_stays(run, script):
    lines = run.lines(2, *run.python(script(count_what_was_sent)))
    assert sorted(lines) == sorted(f"{r} {told}" for r in range(2) for told in (3, 2, 1))


def close_often():
    with pscompy.World() as world:
        peer = 1 - world.rank

        def use():
            for endpoint in world.endpoints(2):
                request = endpoint.isend(b"x", peer)
                endpoint.recv(source=peer)
                request.wait()
                endpoint.barrier()
                endpoint.session.close()

        use()
        world.barrier()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            use()
        world.barrier()
        print(len(os.listdir("/proc/self/fd")) - before, world.stats["workers"])


@pytest.mark.parametrize("env", [SHM, TCP], ids=["shm", "tcp"])
def test_closed_endpoints_keep_nothing_open(run, script, env):
    assert run.lines(2, *run.python(script(close_often)), **env) == ["0 1"] * 2


def fork():
    with pscompy.World() as world:
        peer = 1 - world.rank
        endpoints = world.endpoints(2)
        endpoints[0].isend(b"before", peer)
        assert endpoints[0].recv(source=peer) == b"before"
        child = os.fork()
        if child == 0:
            code = 0
            for endpoint in endpoints:
                try:
                    endpoint.send(b"in the child", peer)
                    code = 1
                except pscompy.Closed as error:
                    code |= "fork" not in str(error)
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        for endpoint in endpoints:
            endpoint.isend(b"after", peer)
            assert endpoint.recv(source=peer) == b"after"
        endpoints[1].barrier()
        print("the parent goes on")


@pytest.mark.parametrize("env", [SHM, TCP], ids=["shm", "tcp"])
def test_a_fork_does_not_harm_the_parents_endpoints(run, script, env):
    assert run.lines(2, *run.python(script(fork)), **env) == ["the parent goes on"] * 2


def alone():
    with pscompy.World() as world:
        for endpoint in world.endpoints(2):
            endpoint.isend(b"to itself", 0)
            print(bytes(endpoint.recv(source=0)).decode())


def test_endpoints_of_one_rank(run, script):
    assert run.lines(1, *run.python(script(alone))) == ["to itself"] * 2


def end_without_closing():
    world = pscompy.World()
    endpoint = world.endpoints(2)[1]
    endpoint.barrier()
    sys.exit(0)


def test_an_exit_closes_endpoints(run, script):
    assert run.lines(2, *run.python(script(end_without_closing))) == []
