"""Arrays of the pool, and functions of puppets that receive views; for several files of tests."""

from __future__ import annotations

import numpy as np
from puppets import BOUND

MIB = 1 << 20


def pattern(array, seed):
    """Fill `array` so that the first byte of each page identifies the page and `seed`; returns
    these bytes."""
    array[...] = seed
    array[::4096] = (np.arange(len(array[::4096])) * 7 + seed) % 251
    return [int(byte) for byte in array[::4096]]


def told(view):
    """One byte of each page; differs for other seeds, exchanged pages and overwritten pages."""
    return [int(byte) for byte in view[::4096]]


def block(session, nbytes, seed):
    array = session.empty(nbytes, np.uint8)
    return array, pattern(array, seed)


def stat(peer, name):
    return peer(lambda here, name: here.session.stats[name], name)


def driven(link, call, *arguments):
    """The puppet's answer to `call`; this side makes progress until it arrives."""
    link.peer.session = link.session
    try:
        return link.peer(call, *arguments)
    finally:
        link.peer.session = None


def take_view(here, tag=-1):
    here.view = here.c.recv_view(tag, BOUND)


def told_there(here):
    return told(here.view)


def take_and_tell(here, tag=-1):
    take_view(here, tag)
    return told(here.view)


def contents_of_view(here, tag=-1):
    take_view(here, tag)
    return bytes(here.view), here.view.flags.writeable


def drop_view(here):
    del here.view
