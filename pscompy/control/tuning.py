"""The parameters of connections (message lengths for each protocol), and their explanations, which
are completed when a program asks for them.

They follow from the estimates of the transports and from the configuration. Times of messages,
which the core measures, correct those of a connection.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pscompy.config.config import Config
from pscompy.config.parsers import AUTO
from pscompy.control import selection
from pscompy.control.explain import Explanation, Rails, considered
from pscompy.control.peer import NOT_CONNECTED, Record
from pscompy.control.transports import Transports

logger = logging.getLogger(__name__)


class Tuning:
    """Chooses, explains and corrects the parameters of the connections of one worker."""

    def __init__(self, transports: Transports, config: Config) -> None:
        self._transports = transports
        self._config = config

    def parameters(
        self, rails: Rails, first: selection.Estimates | None = None
    ) -> selection.Params:
        """Return the parameters (message lengths for each protocol) of a connection over these
        rails of open transports. `first` replaces the estimates of the first rail's transport."""
        options = [self._option(name) for name, _ in rails]
        declared, *others = (it.estimates for it in options if it.estimates is not None)
        return selection.parameters(first or declared, self._settings(options[0]), tuple(others))

    def _option(self, name: str) -> selection.Option:
        return next(option for option in self._transports.options if option.name == name)

    def report(
        self,
        rails: Rails,
        matching: str | None,
        proposed: tuple[str, ...],
        reasons: Mapping[str, str],
    ) -> Explanation:
        """Return what the record of a connection that comes up over these rails keeps."""
        estimates, params = self._option(rails[0][0]).estimates, self.parameters(rails)
        return Explanation(
            proposed, rails, reasons, params=params, matching=matching, estimates=estimates
        )

    def explain(self, record: Record, users: str) -> Explanation:
        """Complete the record's report. `users` are the communicators that share the worker."""
        report = record.report._replace(worker=users)
        if record.report is NOT_CONNECTED:
            return report
        options = self._transports.options
        candidates = considered(options, report.candidates, report.reasons)
        report = report._replace(peer=record.label, candidates=candidates)
        if not report.rails or report.params is None:
            return report
        option, untold = self._option(report.choice), ""
        if report.matching is not None:
            untold = self._untold(option, report.params, report.lanes)
        return report._replace(
            faster=self._faster(option, report),
            shown_from=self._shown_from(option, report.params, report.lanes),
            untold=untold,
            thread=self._config["PROGRESS_THREAD"],
        )

    def _faster(
        self, option: selection.Option, report: Explanation
    ) -> dict[str, tuple[float, int]]:
        """Return the other usable transports that are estimated to be faster than `option` with the
        parameters that the connection began with, see `selection.faster`."""
        excluded = {*dict(report.rails), *report.reasons}
        params = self.parameters(report.rails)
        found: dict[str, tuple[float, int]] = {}
        for other in self._transports.options:
            if other.name in excluded or other.estimates is None or option.estimates is None:
                continue
            if gain := selection.faster(option.estimates, params, other.estimates):
                found[other.name] = gain
        return found

    def _shown_from(
        self, option: selection.Option, params: selection.Params, lanes: int
    ) -> int | None:
        """Return the length of the shortest receive that the peer can see, and write into directly
        (PSP_TUPLEQ); None if it sees none."""
        least = selection.shown_min(self._config["TUPLEQ"], self._config["TUPLEQ_MIN"])
        assert option.estimates is not None
        caps = option.estimates.caps
        put = caps & selection.CAP_PUT_AM and not self._untold(option, params, lanes)
        able = put or caps & selection.CAP_EXPOSE
        if not (least and able and params.scheme == "auto" and lanes == 1):
            return None
        return max(least, params.eager_max + 1) if put else least

    def _untold(self, option: selection.Option, params: selection.Params, lanes: int) -> str:
        assert option.estimates is not None
        caps = option.estimates.caps
        return selection.untold(self._config["TUPLEQ"], caps, params.scheme, lanes)

    def correct(self, record: Record) -> None:
        """Correct the transport's estimates by the measured times of the connection's messages, and
        the connection's parameters if they are too far from the best ones."""
        report, rates = record.report, record.conn.rates()
        if not rates or report.estimates is None or report.params is None:
            return
        corrected = selection.corrected(report.estimates, *rates)
        if selection.loss(corrected, report.params) <= selection.LOSS_MAX:
            return
        params = self.parameters(report.rails, corrected)
        if params == report.params:
            return
        record.conn.adapt(params)
        record.report = report._replace(params=params, estimates=corrected)
        logger.debug("%s: eager up to %d bytes", record.label, params.eager_max)

    def _settings(self, option: selection.Option) -> selection.Settings:
        threshold = f"{option.name.upper()}_RENDEZVOUS"
        name = threshold if threshold in self._config else "RENDEZVOUS"
        wanted = self._config[name]
        return selection.Settings(AUTO if wanted is None else wanted, self._config["RNDV_SCHEME"])
