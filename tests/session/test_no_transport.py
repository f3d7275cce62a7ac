"""Connecting fails fast; the operation that began it says why, however fast that was."""

import pytest

import pscompy


def test_the_first_send_says_why_there_is_no_connection():
    nothing = {"SHM": 0, "TCP": 0}
    with pscompy.Session() as here, pscompy.Session(config=nothing) as there:
        with here.listen("127.0.0.1") as socket:
            for _ in range(30):
                with pytest.raises(pscompy.ConnectError) as caught:
                    there.connect(socket.address).send(b"")
                reasons = caught.value.candidates
                assert reasons["shm"] == "excluded by PSP_SHM=0 (here)"
                assert reasons["tcp"] == "excluded by PSP_TCP=0 (here)"
