"""How many descriptors are opened to find out whether enough are left."""

from __future__ import annotations

from pscompy.control import descriptors
from pscompy.control.handshake.identity import make_identity
from pscompy.control.links import Links

COUNT = 300


def test_looking_for_descriptors_costs_what_the_links_cost(monkeypatch):
    opened = []
    left = descriptors.left

    def counting(count: int) -> bool:
        opened.append(count)
        return left(count)

    monkeypatch.setattr(descriptors, "left", counting)
    links = Links(None, make_identity("here"))
    assert all(links.has_room_for(object()) for _ in range(COUNT))
    assert sum(opened) <= 4 * descriptors.CONNECTION * COUNT


def test_links_share_the_descriptors_that_are_left(monkeypatch):
    """Each link that is coming up will need its own, so the last ones are promised once only."""
    monkeypatch.setattr(descriptors, "left", lambda count: count <= 5 * descriptors.CONNECTION)
    links = Links(None, make_identity("here"))
    assert [links.has_room_for(object()) for _ in range(8)] == [True] * 5 + [False] * 3
