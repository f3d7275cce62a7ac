"""The base of all cases: a session here, one in a separate process, and their connection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from pscompy.api.connection import Connection
from pscompy.api.session import Session
from pscompy.discovery import registry
from pscompy.testing import remote_side
from pscompy.testing.process import BOUND, Far

CAP_PUT, CAP_GET = 0x0004, 0x0008
LARGE = (5 << 20) + 3


@dataclass
class Link:
    """A connection between two processes: `c` is this side of it, `far` calls functions in the
    other process."""

    session: Session
    c: Connection
    far: Far

    @property
    def caps(self) -> int:
        """The transport's capabilities, bits of psc_iface_attr_t.caps."""
        estimates = self.c.explain().estimates
        assert estimates is not None
        return estimates.caps

    @property
    def eager_max(self) -> int:
        """The length in bytes of the longest message that is sent eagerly."""
        return int(self.c.explain().as_dict()["eager_max"])

    @property
    def rendezvous(self) -> str:
        """The rendezvous scheme of longer messages: put, get or am."""
        return str(self.c.explain().as_dict()["rendezvous"])

    def sizes(self) -> list[int]:
        """Return sizes in bytes around every threshold between two protocols, and some other
        sizes."""
        known = self.c.explain().as_dict()
        estimates = self.c.explain().estimates
        assert estimates is not None
        limits = {known["eager_max"], known["zcopy_min"], known["fragment"]}
        limits |= {estimates.max_bcopy, estimates.max_put, estimates.max_get, 8, 64, 248, 512}
        limits |= {2 * known["fragment"]}
        around = {limit + step for limit in limits if limit < 4 << 20 for step in (-1, 0, 1)}
        return sorted({0, 1, 7, 1000, 100_003, LARGE} | {size for size in around if size >= 0})

    def counted(self) -> Counted:
        """Return an object that, when called, returns the changes of the counters of both sides
        from now on."""
        return Counted(self, self.c.stats, self.far(remote_side.stats))


class Counted:
    """The changes of counters since construction: of this side by name, of the far side by `far_`
    and name."""

    def __init__(self, link: Link, here: dict[str, int], there: dict[str, int]) -> None:
        self._link = link
        self._before = here, there

    def here(self) -> dict[str, int]:
        """The changes on this side only; may be called while the far process is busy."""
        before, _ = self._before
        stats = self._link.c.stats
        return {name: value - before.get(name, 0) for name, value in stats.items()}

    def __call__(self) -> dict[str, int]:
        _, before = self._before
        far = self._link.far(remote_side.stats)
        return self.here() | {f"far_{name}": value - before[name] for name, value in far.items()}


class Base:
    """The base class of the groups of cases. Derive suites from `conformance.Suite`."""

    transport: ClassVar[str] = ""
    """The name of the transport under test."""

    config: ClassVar[Mapping[str, Any]] = {}
    """Further variables of both sides, for example {"MINE_BUFFER_SIZE": "4k"}."""

    large: ClassVar[int] = (48 << 20) + 5
    """The length in bytes of the longest message."""

    _far: ClassVar[Far | None] = None
    _found: ClassVar[tuple[Mapping[str, Any], list[registry.Found]] | None] = None

    @pytest.fixture
    def far(self, request: pytest.FixtureRequest) -> Far:
        """The far process: one for all cases of the class, replaced if a case has killed it."""
        cls = type(self)
        if cls._far is None or not cls._far.alive:
            cls._far = Far()
            request.node.parent.addfinalizer(cls._far.close)
        return cls._far

    @pytest.fixture
    def link(self, far: Far) -> Iterator[Link]:
        """An established connection, with the settings of the suite."""
        with self.joined(far) as link:
            yield link

    def joined(
        self, far: Far, here: Mapping[str, Any] = {}, there: Mapping[str, Any] = {}
    ) -> Joined:
        """Return a context with a connection; `here` and `there` are further variables of this side
        and of the far side."""
        common = self.settings()
        return Joined(self.transport, far, {**common, **here}, {**common, **there})

    def settings(self) -> dict[str, Any]:
        """The variables of `config`, and variables that disable all other transports. Skips the
        test if the transport is not available."""
        cls = type(self)
        if cls._found is None or cls._found[0] != self.config:
            cls._found = self.config, registry.load(self.config)[1]
        found = {it.name: it for it in reversed(cls._found[1])}
        assert self.transport in found, f"{self.transport} is not among {', '.join(found)}"
        if reason := found[self.transport].unavailable():
            pytest.skip(f"{self.transport}: {reason}")
        others = {name.upper(): 0 for name in found if name != self.transport}
        return {**others, **self.config}


class Joined:
    """A context that opens two sessions and their connection, and closes them."""

    def __init__(
        self, transport: str, far: Far, here: dict[str, Any], there: dict[str, Any]
    ) -> None:
        self._transport = transport
        self._far = far
        self._there = there
        self._session = Session(config=here)

    def __enter__(self) -> Link:
        try:
            return self._connect()
        except BaseException:
            self._session.close()
            raise

    def _connect(self) -> Link:
        socket = self._session.listen("127.0.0.1")
        self._far(remote_side.connect, socket.address, self._there)
        connection = socket.accept(timeout=BOUND)
        assert connection.transport == self._transport, str(connection.explain())
        self._far.session = self._session
        return Link(self._session, connection, self._far)

    def __exit__(self, *exc: object) -> None:
        self._far.session = None
        if self._far.busy:  # the case has failed during a call
            self._far.kill()
        if self._far.alive:
            self._far.begin(remote_side.close)
        self._session.close()
        if self._far.alive:
            self._far.result()
