"""The judge of answers: by the output cell, and against a cold run of the same request."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.accounting import violations
from harness.answers import difference, other_text, unlike_cold, wrong_cell
from harness.bench import Bench
from harness.client import Options
from harness.errors import ReferenceTrouble
from harness.expect import Failure, Kind
from harness.ledger import ColdRow
from harness.prompts import Prompt, Route
from harness.replies import Reply
from harness.server.config import ServerConfig
from harness.setting import Setting
from harness.stopwatch import Stopwatch

NOT_JUDGED = "not judged"
"""How answers were judged that could not be."""
_BLIND = f"{NOT_JUDGED}: noise hides what other adapters or texts do"

_NOTHING_REUSED = f"{NOT_JUDGED}: the control reused nothing, which shows no noise"
_NO_COLD_RUN = f"{NOT_JUDGED}: a cold run would take as long as the scenario"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that was answered."""

    route: Route
    prompt: Prompt
    setting: Setting
    """The adapters it was asked under."""
    options: Options
    prompt_tokens: int
    """The prompt's length by `/tokenize`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What was found out about an answer."""

    by: str
    """How it was judged."""
    cold: ColdRow | None = None
    wrong: tuple[Failure, ...] = ()


@dataclass(slots=True)
class Judge:
    """Says of the answers of one scenario whether they are right."""

    bench: Bench
    compare_cold: bool
    """Whether cold runs are made; else answers are judged by their cell alone."""
    watch: Stopwatch
    """Of the time that cold runs may take."""

    def answer(self, asked: Asked, reply: Reply, config: ServerConfig) -> Judgement:
        """What is wrong with the answer of a server with this configuration.

        Raises `ReferenceTrouble` where there is nothing to judge it by.
        """
        if not reply.tokens:
            silent = Failure(Kind.ACCOUNTING, "the reply reports no probabilities")
            return Judgement(by=NOT_JUDGED, wrong=(silent,))
        by, texts, cold = [], [], None
        oracle = self.bench.model.oracle
        if oracle is not None:
            if not oracle.marks(asked.prompt.text):
                by.append("cell")
                texts.append(wrong_cell(oracle, reply.tokens, asked.setting.as_dict()))
            texts.append(other_text(oracle, reply))
        if self.compare_cold:
            with self.watch:
                cold, text = self._against_cold(asked, reply, config)
            by.append(_how(cold))
            texts.append(text)
        wrong = tuple(Failure(Kind.WRONG_ANSWER, text) for text in texts if text)
        return Judgement(by="; ".join(by) or _NO_COLD_RUN, cold=cold, wrong=wrong)

    def _against_cold(
        self, asked: Asked, reply: Reply, config: ServerConfig
    ) -> tuple[ColdRow, str | None]:
        """How the answer compares with a cold run's, and what is wrong with it."""
        reference = self.bench.reference(config)
        tolerance = reference.tolerance(self.watch.left, adapters=bool(config.adapters))
        row = ColdRow(limit=tolerance.limit, noise=tolerance.noise, signal=tolerance.signal)
        if not tolerance.tells:
            if self.bench.model.oracle is not None and tolerance.noise is not None:
                # On a generated model other adapters make a difference of many nats: such noise
                # is no noise.
                raise ReferenceTrouble(f"the control is {_BLIND}, {row}")
            return row, None
        n_predict = asked.options.n_predict
        cold = reference.cold(
            asked.route, asked.prompt, asked.setting, self.watch.left, n_predict=n_predict
        )
        broken = violations(cold, prompt_tokens=asked.prompt_tokens, n_predict=n_predict)
        if broken:
            raise ReferenceTrouble(f"cold run: {broken[0].message}")
        apart = difference(cold.tokens[0], reply.tokens[0])
        return replace(row, apart=apart), unlike_cold(cold, reply, tolerance)


def _how(cold: ColdRow) -> str:
    """How an answer was judged by a cold run, or why it was not."""
    if cold.apart is not None:
        return "cold run"
    return _NOTHING_REUSED if cold.noise is None else _BLIND
