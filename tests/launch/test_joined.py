"""A job that is joined of several: exchanges that do not end in time."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from pscompy import Timeout
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
