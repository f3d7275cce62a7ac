"""The server's side of PMI-1 for one job, without input or output.

The caller (launch/job.py or store_server.py) passes each line that a rank wrote, and delivers the
replies. A barrier that cannot complete, because a rank has left, is answered with an error at once,
so that no rank waits for one that will never enter the barrier; in a job that goes on without the
ranks that have left, the others are a complete barrier. `watch` and `leave` are requests of
pscompy's own ranks (see ends.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from pscompy.world.bootstrap import ends, waits
from pscompy.world.bootstrap.ends import Ends, Replies
from pscompy.world.bootstrap.pmi1_wire import (
    SUBVERSION,
    VERSION,
    WireError,
    is_word,
    pack,
    parse,
)

JOINED = "pscompy.joined"  # key of FIRST:SIZE, which a rank publishes if the job has joined others
KVSNAME_MAX = 256
KEYLEN_MAX = 64
VALLEN_MAX = 1024

# Requests of MPI programs that this launcher answers with a refusal.
_REFUSED = {
    "spawn": "spawn_result",
    "publish_name": "publish_result",
    "unpublish_name": "unpublish_result",
    "lookup_name": "lookup_result",
}


class Abort(Exception):
    """A rank asked for the end of the whole job."""

    def __init__(self, rank: int, code: int) -> None:
        super().__init__(f"rank {rank} aborted the job with code {code}")
        self.rank = rank
        self.code = code


class Server:
    """The key-value store and the barrier of one job."""

    def __init__(self, counts: Sequence[int], name: str, keep_going: bool = False) -> None:
        """`counts` are the numbers of ranks on each host; `keep_going`: the job goes on without
        ranks that have left."""
        self._keep_going = keep_going
        self.size = sum(counts)
        # the first of these ranks in their World, and its size, as the ranks have published it
        self.joined = 0, self.size
        self.name = name
        # MPICH reads this key to find which ranks share a node.
        nodes = ",".join(f"({node},1,{count})" for node, count in enumerate(counts))
        self._values = {"PMI_process_mapping": f"(vector,{nodes})"}
        self._waiting: set[int] = set()
        self._left: list[int] = []  # ranks in the order in which they left
        self._spawning: set[int] = set()  # ranks that have sent part of a spawn request
        self._ends = Ends()
        # clients of each rank that have not signed off: MPI may share the socket with pscompy
        self._clients: Counter[int] = Counter()
        # ranks that have left a World by an exception, or have ended, in this order, each with the
        # rank that it blames
        self.departures: dict[int, int | None] = {}
        self._signed_off: set[int] = set()

    def receive(self, rank: int, line: bytes) -> Replies:
        """Handle one line of `rank` and return the replies.

        Raises `WireError` if the line is not PMI-1, and `Abort` if the rank aborts the job.
        """
        if rank in self._spawning:
            return self._spawn_line(rank, line)
        command, fields = parse(line)
        if line.startswith(b"mcmd="):
            self._spawning.add(rank)
            return []
        handler = _HANDLERS.get(command)
        if handler is None:
            reply = _REFUSED.get(command, f"{command}_result")
            return [(rank, pack(reply, rc=-1, msg="not_supported"))]
        return handler(self, rank, fields)

    def leave(self, rank: int) -> Replies:
        """Handle the end of a rank's process or of its socket, and return the replies."""
        self._left.append(rank)
        self._depart(rank)
        self._waiting.discard(rank)
        self._ends.forget(rank)
        return self._end_barrier()

    def end(self, rank: int, status: int | None) -> Replies:
        """Report the end of a rank's process to the other ranks: its exit code, the negative number
        of a signal, or None if it is not known."""
        self._depart(rank)
        return self._ends.add(ends.of_process(rank, status, rank in self._signed_off))

    def _depart(self, rank: int, blames: int | None = None) -> None:
        """Note a departure. The first one gives the rank its place, and the first that blames
        another rank counts."""
        if self.departures.get(rank) is None:
            self.departures[rank] = blames

    def wait_of(self, rank: int) -> str:
        """Return how long this rank has waited, and for what, as the rank has published it; "" if
        it has published no wait."""
        value = self._values.get(waits.key(rank), "").partition(":")[2]
        wait = waits.unpack(value)
        return "" if wait is None else str(wait)

    def _spawn_line(self, rank: int, line: bytes) -> Replies:
        if line.strip() != b"endcmd":
            return []
        self._spawning.remove(rank)
        return [(rank, pack("spawn_result", rc=-1, msg="not_supported"))]

    def _init(self, rank: int, fields: dict[str, str]) -> Replies:
        versions = {"pmi_version": VERSION, "pmi_subversion": SUBVERSION}
        rc = 0 if fields.get("pmi_version") == str(VERSION) else -1
        self._clients[rank] += 1
        if self._clients[rank] > 1:  # the other client would not understand a report
            self._ends.forget(rank)
        return [(rank, pack("response_to_init", **versions, rc=rc))]

    def _maxes(self, rank: int, fields: dict[str, str]) -> Replies:
        limits = {
            "kvsname_max": KVSNAME_MAX,
            "keylen_max": KEYLEN_MAX,
            "vallen_max": VALLEN_MAX,
        }
        return [(rank, pack("maxes", **limits))]

    def _appnum(self, rank: int, fields: dict[str, str]) -> Replies:
        return [(rank, pack("appnum", appnum=0))]

    def _kvsname(self, rank: int, fields: dict[str, str]) -> Replies:
        return [(rank, pack("my_kvsname", kvsname=self.name))]

    def _universe(self, rank: int, fields: dict[str, str]) -> Replies:
        return [(rank, pack("universe_size", size=self.size))]

    def _put(self, rank: int, fields: dict[str, str]) -> Replies:
        key, value = fields.get("key", ""), fields.get("value", "")
        fits = 0 < len(key) < KEYLEN_MAX and len(value) < VALLEN_MAX
        if not fits or not (value == "" or is_word(value)):
            return [(rank, pack("put_result", rc=-1, msg="bad_key_or_value"))]
        self._values[key] = value
        _, first, size, *_ = (*value.split(":"), "", "", "")  # the number of pieces stands first
        if key == JOINED and first.isdecimal() and size.isdecimal():
            self.joined = int(first), int(size)
        return [(rank, pack("put_result", rc=0, msg="success"))]

    def _get(self, rank: int, fields: dict[str, str]) -> Replies:
        value = self._values.get(fields.get("key", ""))
        if not value:
            return [(rank, pack("get_result", rc=-1, msg="key_not_found"))]
        return [(rank, pack("get_result", rc=0, msg="success", value=value))]

    def _barrier(self, rank: int, fields: dict[str, str]) -> Replies:
        self._waiting.add(rank)
        return self._end_barrier()

    def _end_barrier(self) -> Replies:
        """Return the answers of a barrier that is complete, or that can never be."""
        refused = self._left and not self._keep_going
        if not refused and len(self._waiting.union(self._left)) < self.size:
            return []
        ranks, self._waiting = sorted(self._waiting), set()
        line = pack("barrier_out")
        if refused:
            line = pack("barrier_out", rc=-1, msg=f"rank_{self._left[0]}_has_left")
        return [(rank, line) for rank in ranks]

    def _watch(self, rank: int, fields: dict[str, str]) -> Replies:
        """Report the ends of ranks; `world` is given if the rank has opened a World."""
        if self._clients[rank] > 1:
            return []
        if "world" in fields:
            self.departures.pop(rank, None)
        return self._ends.watch(rank, max(0, _number(fields, "since")))

    def _leave(self, rank: int, fields: dict[str, str]) -> Replies:
        """Note that the rank leaves a World. The answer lets the rank close its connections, so the
        ranks that fail for want of them leave later."""
        failed = fields.get("failed") == "1"
        if failed:
            self._depart(rank, _blamed(fields))
        end = ends.of_world(rank, _number(fields, "world"), failed)
        return [(rank, pack("leave_result", rc=0)), *self._ends.add(end)]

    def _finalize(self, rank: int, fields: dict[str, str]) -> Replies:
        self._clients[rank] -= 1
        self._signed_off.add(rank)
        self._ends.forget(rank)
        self._depart(rank, _blamed(fields))
        return [(rank, pack("finalize_ack"))]

    def _abort(self, rank: int, fields: dict[str, str]) -> Replies:
        try:
            code = int(fields.get("exitcode", "1"))
        except ValueError:
            code = 1
        raise Abort(rank, code)


def _number(fields: dict[str, str], name: str) -> int:
    text = fields.get(name, "")
    if not text.isdecimal():
        raise WireError(f"{name}={text[:40]!r} is no number")
    return int(text)


def _blamed(fields: dict[str, str]) -> int | None:
    """Return the rank for want of which the sender has failed; None if it names none."""
    return _number(fields, "blames") if "blames" in fields else None


_HANDLERS: dict[str, Callable[[Server, int, dict[str, str]], Replies]] = {
    "init": Server._init,
    "get_maxes": Server._maxes,
    "get_appnum": Server._appnum,
    "get_my_kvsname": Server._kvsname,
    "get_universe_size": Server._universe,
    "put": Server._put,
    "get": Server._get,
    "barrier_in": Server._barrier,
    "watch": Server._watch,
    "leave": Server._leave,
    "finalize": Server._finalize,
    "abort": Server._abort,
}
