"""The output of ranks, in the launcher's own process."""

from __future__ import annotations

import os
import socket

from pscompy.launch.event_loop import Loop
from pscompy.launch.rank import Rank
from pscompy.launch.terminal import Terminal


def test_a_process_that_a_rank_left_behind_can_still_write(capfd):
    """The end of the rank and its last output are reported in one turn of the loop."""
    loop = Loop()
    terminal = Terminal(loop)
    (out, out_end), (err, err_end), (signals, signals_end) = (os.pipe() for _ in range(3))
    pmi, pmi_end = socket.socketpair()
    rank = Rank(0, os.getpid(), out, err, pmi)
    loop.watch(signals, lambda: terminal.finish(rank))  # handled before output, as in a job
    terminal.attach(rank, bytes)
    os.write(out_end, b"the rank's\n")
    os.write(signals_end, b"C")
    terminal.balance()
    loop.turn(None)
    os.write(out_end, b"of a process that it left behind\n")
    os.close(out_end)
    os.close(err_end)
    terminal.flush()
    loop.close()
    assert capfd.readouterr().out == "the rank's\nof a process that it left behind\n"
    for fd in (signals, signals_end):
        os.close(fd)
    pmi.close()
    pmi_end.close()
