"""Proofs of the key, seals and versions: nothing of another key or precon is accepted."""

from __future__ import annotations

import os

import pytest
from precon_pairs import KEY, OTHER_KEY, Pair, identity, sealed_size

from pscompy.control.handshake import greeting, limits
from pscompy.control.handshake.auth import Seal, Secrets
from pscompy.control.handshake.events import (
    Refused,
)
from pscompy.control.handshake.frames import Kind, Proposal, RefuseCode
from pscompy.control.handshake.greeting import full_greeting
from pscompy.control.handshake.handshake import Handshake, Side, frames
from pscompy.control.handshake.limits import VERSION_MAX, VERSION_MIN
from pscompy.control.handshake.states import PreconState
from pscompy.control.handshake.tables import RemoteProtocolError
from pscompy.errors import AuthError, VersionMismatch


def test_another_key_is_told_on_both_sides() -> None:
    pair = Pair(peer_key=OTHER_KEY)
    with pytest.raises(AuthError, match="another test"):
        pair.run()
    with pytest.raises(AuthError, match="the test"):
        pair.run()
    assert pair.dialer.output() == pair.listener.output() == b""


OURS = rf"{VERSION_MIN}\.\.\.{VERSION_MAX}"


def test_versions_that_do_not_overlap_are_told_on_both_sides() -> None:
    pair = Pair()
    pair.listener = Handshake(Side.LISTENER, KEY, identity("b"), versions=(8, 9))
    with pytest.raises(VersionMismatch, match=rf"8\.\.\.9.*{OURS}"):
        pair.listener.receive(pair.dialer.output())
    with pytest.raises(VersionMismatch, match=rf"{OURS}.*8\.\.\.9"):
        pair.dialer.receive(pair.listener.output())


def test_a_mirror_proves_nothing() -> None:
    dialer = Handshake(Side.DIALER, KEY, identity("a"), Kind.PLAIN)
    with pytest.raises(AuthError, match="mirrors"):
        dialer.receive(dialer.output())


def test_a_greeting_says_nothing_of_the_key() -> None:
    """Before a dialer has proved the key, the bytes that a listener sends do not depend on its
    key, but only on random numbers. The same holds for a dialer, because the process it reaches
    may be no listener."""
    said = {KEY: b"", OTHER_KEY: b""}
    for key in said:
        pair = Pair(key=key, peer_key=key)
        pair.listener._stream.hello = pair.dialer._stream.hello = greeting.Hello(
            b"n" * limits.NONCE_SIZE
        )
        stranger = greeting.Hello(b"s" * limits.NONCE_SIZE).pack() + b"?" * limits.MAC_SIZE
        with pytest.raises(AuthError, match="another key"):
            pair.listener.receive(stranger)
        said[key] = pair.listener.output()
    assert said[KEY] == said[OTHER_KEY] == pair.listener._stream.hello.pack() + frames.WRONG_PROOF


def test_a_proof_depends_on_both_nonces() -> None:
    """A proof cannot be used on another precon, and proofs cannot be computed in advance."""
    greetings = [greeting.Hello(letter * limits.NONCE_SIZE).pack() for letter in (b"a", b"b")]
    proofs = set()
    for dialer in greetings:
        for listener in greetings:
            derived = Secrets(KEY.secret, dialer, listener)
            proofs.add(Seal(derived.dialer, derived.transcript).proof())
    assert len(proofs) == 4


def test_a_listener_that_does_not_know_the_key_cannot_pretend_to() -> None:
    pair = Pair()
    pair.listener.receive(pair.dialer.output())
    pair.dialer.receive(pair.listener.output())
    with pytest.raises(AuthError, match="does not prove"):
        pair.dialer.receive(os.urandom(limits.MAC_SIZE))


def test_a_listener_without_descriptors_says_so() -> None:
    pair = Pair()
    (refused,) = pair.dialer.receive(full_greeting())
    assert isinstance(refused, Refused)
    assert refused.code is RefuseCode.FULL
    assert "RLIMIT_NOFILE" in refused.reason
    assert pair.dialer.state is PreconState.CLOSED


def test_nothing_of_an_earlier_precon_can_be_played_again() -> None:
    first = Pair()
    recorded = first.dialer.output()
    first.listener.receive(recorded)
    first.dialer.receive(first.listener.output())
    recorded += first.dialer.output()
    replayed = Handshake(Side.LISTENER, KEY, identity("b"))
    with pytest.raises(AuthError, match="another key"):
        replayed.receive(recorded)


def test_a_listener_says_nothing_before_the_greeting() -> None:
    listener = Handshake(Side.LISTENER, KEY, identity("b"))
    assert listener.output() == b""
    with pytest.raises(RemoteProtocolError):
        listener.receive(b"GET / HTTP/1.1\r\n")
    assert listener.output() == b""


def test_a_candidate_cannot_be_stripped() -> None:
    """An attacker on the precon removes shm from the proposal and corrects all lengths."""
    pair = Pair()
    pair.introduce()
    both = tuple(frames.Candidate(name, 1, b"x") for name in ("shm", "tcp"))
    pair.connector.propose(Proposal(both))
    sealed = pair.connector.output()
    assert len(sealed) == sealed_size(Proposal(both))
    stripped = frames.encode(Proposal(both[1:])) + sealed[-limits.MAC_SIZE :]
    with pytest.raises(RemoteProtocolError, match="altered in transit"):
        pair.acceptor.receive(stripped)


def test_frames_cannot_be_dropped_or_swapped() -> None:
    pair = Pair()
    pair.to_trial()
    pair.report(pair.connector)
    up = pair.connector.output()
    pair.connector.lane_failed("broken")
    failed = pair.connector.output()
    with pytest.raises(RemoteProtocolError):
        pair.acceptor.receive(failed + up)


def test_seals_do_not_move_between_directions() -> None:
    secrets = Secrets(b"k" * 32, b"one", b"two")
    sealed = Seal(secrets.dialer, secrets.transcript).next(b"content")
    with pytest.raises(RemoteProtocolError):
        Seal(secrets.listener, secrets.transcript).check(b"content", sealed)


def test_secrets_are_not_shown() -> None:
    secrets = Secrets(KEY.secret, b"one", b"two")
    for secret in (KEY.secret, secrets.dialer, secrets.listener, secrets.tokens):
        assert repr(secret) not in repr(secrets) + repr(KEY)
