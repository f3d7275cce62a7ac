"""Conformance cases: active messages, and remote memory access."""

from __future__ import annotations

import pytest

from pscompy import PscomError
from pscompy.testing import remote_side
from pscompy.testing.base import CAP_GET, CAP_PUT, LARGE, Base, Link
from pscompy.testing.process import BOUND
from pscompy.testing.remote_side import payload

NUMBER = 1234


class Memory(Base):
    """Cases for the guarantees of `am_send`, `put` and `get`."""

    def test_active_messages_arrive_in_order(self, link: Link) -> None:
        link.far(remote_side.handle_messages, NUMBER)
        sizes = [0, 1, 100, link.eager_max, 1000, LARGE, 5]
        counted = link.counted()
        for place, nbytes in enumerate(sizes):
            link.c.am_send(NUMBER, b"header %d" % place, payload(nbytes, place))
        came = link.far(remote_side.handled, len(sizes))
        assert [message[1] for message in came] == [b"header %d" % i for i in range(len(sizes))]
        assert [message[2] for message in came] == [payload(n, i) for i, n in enumerate(sizes)]
        counts = counted()
        assert counts["am_sent"] == counts["far_am_received"] == len(sizes)

    @pytest.mark.parametrize("nbytes", [1, 4096, LARGE])
    def test_get_reads(self, link: Link, nbytes: int) -> None:
        rkey = link.far(remote_side.register, nbytes)
        counted = link.counted()
        buffer = bytearray(nbytes)
        link.c.get(buffer, rkey)
        assert buffer == payload(nbytes)
        part = bytearray(nbytes // 2)
        link.c.get(part, rkey, offset=nbytes - len(part))
        assert part == payload(nbytes)[nbytes - len(part) :]
        self._check_how(link, counted(), "rma_get", CAP_GET)

    @pytest.mark.parametrize("nbytes", [1, 4096, LARGE])
    def test_put_writes_and_is_seen_at_its_target(self, link: Link, nbytes: int) -> None:
        rkey = link.far(remote_side.register, nbytes)
        counted = link.counted()
        link.c.put(payload(nbytes, 7), rkey)
        assert link.far(remote_side.memory) == payload(nbytes, 7)
        link.c.put(b"!", rkey, offset=nbytes - 1)
        assert link.far(remote_side.memory) == payload(nbytes, 7)[:-1] + b"!"
        self._check_how(link, counted(), "rma_put", CAP_PUT)

    def test_beyond_the_region_is_refused(self, link: Link) -> None:
        rkey = link.far(remote_side.register, 100)
        for buffer, offset in ((bytearray(101), 0), (bytearray(1), 100), (bytearray(1), 2**63)):
            with pytest.raises(PscomError):
                link.c.get(buffer, rkey, offset=offset)
            with pytest.raises(PscomError):
                link.c.put(buffer, rkey, offset=offset)
        assert link.far(remote_side.memory) == payload(100)
        self._still_works(link)

    def test_a_region_that_was_closed_is_refused(self, link: Link) -> None:
        rkey = link.far(remote_side.register, 100)
        link.far(remote_side.unregister)
        with pytest.raises(PscomError):
            link.c.put(b"x", rkey)
        assert link.far(remote_side.memory) == payload(100)
        self._still_works(link)

    @staticmethod
    def _check_how(link: Link, counts: dict[str, int], direct: str, cap: int) -> None:
        how = direct if link.caps & cap else "rma_emulated"
        assert counts[how] > 0, f"not by {how}: {counts}"

    @staticmethod
    def _still_works(link: Link) -> None:
        link.far.begin(remote_side.echo, 1)
        link.c.send(b"still there", timeout=BOUND)
        assert link.c.recv(timeout=BOUND) == b"still there"
        link.far.result()
