"""One attempt to bring lanes up: the reports of both sides, and the outcome that follows. No I/O.

Each side reports UP when its lanes are up, GO when it knows that they are up on both sides, and
FAILED otherwise; the table REPORT has what may follow. A side whose time has passed reports LATE;
the attempt fails when both have.
"""

from __future__ import annotations

from collections.abc import Callable

from pscompy.control.handshake import frames
from pscompy.control.handshake.events import Established, TrialFailed
from pscompy.control.handshake.frames import LaneReport, Said
from pscompy.control.handshake.states import REPORT, Report
from pscompy.control.handshake.tables import LocalProtocolError, RemoteProtocolError

Outcome = TrialFailed | Established | None
"""None while the attempt goes on."""

CheckLanes = Callable[[], str]
"""Returns why a lane of this side has failed since all were up, or ""."""


class Trial:
    """The attempt `number` of a precon; `send` sends a report."""

    def __init__(self, number: int, send: Callable[[frames.Frame], None]) -> None:
        self.number = number
        self.here = Report.NOTHING
        self._there = Report.NOTHING
        # reason of the first failure, and whether a lane of this side failed
        self._failure = ("", True)
        # why this side has reported LATE (may be ""); None if it has not
        self._late_here: str | None = None
        self._late_there: str | None = None
        self._send = send

    @property
    def final(self) -> bool:
        """Whether this side has given its last report."""
        return self.here in (Report.GO, Report.FAILED)

    # ---- events on this side ----

    def up(self, check_lanes: CheckLanes) -> Outcome:
        """Report that all lanes are up on this side."""
        self._say(Report.UP)
        return self._advance(check_lanes)

    def failed(self, reason: str) -> Outcome:
        """Report that a lane failed on this side."""
        self._fail(reason, here=True)
        return self._advance()

    def late(self, reason: str) -> Outcome:
        """Report that the attempt's time has passed here, because of `reason` if that is known."""
        if self.final or self._late_here is not None:
            return None
        self._late_here = reason
        self._send(LaneReport(self.number, Said.LATE, reason))
        return self._advance()

    # ---- reports of the peer ----

    def on_report(self, frame: LaneReport, check_lanes: CheckLanes) -> Outcome:
        """Take a report of the peer on its lanes; returns the outcome of the attempt, if any."""
        if frame.said is Said.LATE:
            self._late_there = frame.reason
            return self._advance()
        if frame.said is Said.FAILED:
            self._remember(frame.reason, here=False)
        elif frame.said is Said.GO and self.here is Report.NOTHING:
            raise RemoteProtocolError("GO before this side's lanes are up")
        self._there = _walk(self._there, Report[frame.said.name])
        return self._advance(check_lanes)

    # ---- what follows from the reports of both sides ----

    def _advance(self, check_lanes: CheckLanes = str) -> Outcome:
        """Send the reports that the table REPORT demands now, and return the outcome, if any."""
        if self._late_here is not None and self._late_there is not None:
            ours = bool(self._late_here) or not self._late_there
            self._fail(_too_late(self._late_here if ours else self._late_there), ours)
        if self._there is Report.FAILED and self.here is not Report.FAILED:
            self._say(Report.FAILED)
        elif self.here is Report.UP and self._there in (Report.UP, Report.GO):
            if failure := check_lanes():  # checked before GO, which is never taken back
                self._fail(failure, here=True)
            else:
                self._say(Report.GO)
        if self.here is self._there is Report.FAILED:
            return TrialFailed(self.number, *self._failure)
        if self.here is self._there is Report.GO:
            return Established(self.number)
        return None

    def _fail(self, reason: str, here: bool) -> None:
        if not self.final:
            self._remember(reason, here)
            self._say(Report.FAILED, reason)

    def _remember(self, reason: str, here: bool) -> None:
        if not self._failure[0]:
            self._failure = (reason or "no reason given", here)

    def _say(self, report: Report, reason: str = "") -> None:
        self.here = _walk(self.here, report)
        self._send(LaneReport(self.number, Said[report.name], reason))


def _walk(before: Report, report: Report) -> Report:
    if report not in REPORT[before]:
        raise LocalProtocolError(f"{report.name} after {before.name}")
    return REPORT[before][report]


def _too_late(why: str) -> str:
    return "did not come up in time (PSP_CANDIDATE_TIMEOUT)" + (f": {why}" if why else "")
