"""The judge of answers: by the output cell, and against a cold run of the same request."""

from __future__ import annotations

from dataclasses import dataclass

from harness.accounting import violations
from harness.answers import other_text, unlike_cold, wrong_cell
from harness.bench import Bench
from harness.client import Options
from harness.errors import ReferenceTrouble
from harness.expect import Failure, Kind
from harness.prompts import Prompt, Route
from harness.replies import Reply
from harness.server.config import ServerConfig
from harness.setting import Setting
from harness.stopwatch import Stopwatch

NOT_JUDGED = "not judged"
"""How answers were judged that could not be."""


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


@dataclass(slots=True)
class Judge:
    """Says of the answers of one scenario whether they are right."""

    bench: Bench
    compare_cold: bool
    """Whether cold runs are made; else answers are judged by their cell alone."""
    watch: Stopwatch
    """Of the time that cold runs may take."""

    def answer(self, asked: Asked, reply: Reply, config: ServerConfig) -> tuple[str, list[Failure]]:
        """How the answer of a server with this configuration was judged, and what is wrong with it.

        Raises `ReferenceTrouble` where there is nothing to judge it by.
        """
        if not reply.tokens:
            return NOT_JUDGED, [Failure(Kind.ACCOUNTING, "the reply reports no probabilities")]
        by, texts = [], []
        oracle = self.bench.model.oracle
        if oracle is not None:
            by.append("cell")
            texts.append(wrong_cell(oracle, reply.tokens, asked.setting.as_dict()))
            texts.append(other_text(oracle, reply))
        if self.compare_cold:
            with self.watch:
                how, text = self._against_cold(asked, reply, config)
            by.append(how)
            texts.append(text)
        failures = [Failure(Kind.WRONG_ANSWER, text) for text in texts if text]
        return "; ".join(by) or NOT_JUDGED, failures

    def _against_cold(
        self, asked: Asked, reply: Reply, config: ServerConfig
    ) -> tuple[str, str | None]:
        """How the answer compares with a cold run's: by what tolerance, and what is wrong."""
        reference = self.bench.reference(config)
        tolerance = reference.tolerance(self.watch.left)
        if not tolerance.tells:
            blind = f"{NOT_JUDGED}: noise hides what other adapters do, {tolerance}"
            if self.bench.model.oracle is not None:
                # On a generated model other adapters make a difference of many nats: such noise
                # is no noise.
                raise ReferenceTrouble(f"the control is {blind}")
            return blind, None
        n_predict = asked.options.n_predict
        cold = reference.cold(
            asked.route, asked.prompt, asked.setting, self.watch.left, n_predict=n_predict
        )
        broken = violations(cold, prompt_tokens=asked.prompt_tokens, n_predict=n_predict)
        if broken:
            raise ReferenceTrouble(f"cold run: {broken[0].message}")
        return f"cold run, within {tolerance}", unlike_cold(cold, reply, tolerance)
