"""A job that is joined of several: exchanges that do not end in time."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace

import pytest

from pscompy import PeerLost, Timeout
from pscompy.config.config import Config
from pscompy.config.variables import VARIABLES
from pscompy.world.bootstrap.joined_jobs import Joined
from pscompy.world.bootstrap.membership import Membership
from pscompy.world.bootstrap.store import enter
from tests.launch.test_store import free_port
from tests.names import A_KEY


class Meeting:
    """The meeting of a machine of one module, which ends the first exchange only."""

    def exchange(self, number, text, timeout):
        if number:
            raise Timeout("modules are missing")
        return {0: text}

    def close(self):
        pass


def test_all_ranks_give_up_an_exchange_that_rank_0_gives_up():
    config = Config({"": VARIABLES}, {"KEY": A_KEY})
    join = SimpleNamespace(name="machine", module=0, timeout=60, meeting=Meeting)
    port, gave_up = free_port(), []

    def takes_part(rank):
        member = Membership(rank, 2, "127.0.0.1", port, "PSP_STORE")
        joined = Joined(enter(member, config), join)
        with pytest.raises(Timeout):
            joined.barrier(0.5)
        gave_up.append(joined)

    ranks = [threading.Thread(target=takes_part, args=(it,), daemon=True) for it in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(60)
    for joined in gave_up:
        joined.finalize()
    assert len(gave_up) == 2


class Second(Meeting):
    """The meeting of a module that follows one of three ranks."""

    def exchange(self, number, text, timeout):
        return {0: json.dumps([{"job": "other", "module": 0}] * 3), 1: text}


def test_a_rank_that_has_left_has_its_number_in_the_joined_job():
    config = Config({"": VARIABLES}, {"KEY": A_KEY})
    join = SimpleNamespace(name="machine", module=1, timeout=60, meeting=Second)
    port = free_port()

    def leaves():
        Joined(enter(Membership(1, 2, "127.0.0.1", port, "PSP_STORE"), config), join).finalize()

    other = threading.Thread(target=leaves, daemon=True)
    other.start()
    joined = Joined(enter(Membership(0, 2, "127.0.0.1", port, "PSP_STORE"), config), join)
    with pytest.raises(PeerLost, match="barrier of all ranks: rank 4 has left") as caught:
        joined.barrier(60)
    assert caught.value.peer == "rank 4"
    other.join(60)
    joined.finalize()
