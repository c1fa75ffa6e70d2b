"""The measure of a right answer: a server of the same build that cannot reuse anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.answers import Tolerance, difference
from harness.client import Client, Options
from harness.errors import Disconnected, ReferenceTrouble, RequestError, ServerError
from harness.models.spec import Model
from harness.prompts import Prompt, Route, prose
from harness.replies import Reply, TokenProbs
from harness.server.config import LoadedAdapter, ServerConfig
from harness.server.process import LlamaServer, ServerExited
from harness.setting import Setting
from harness.stopwatch import Stopwatch

_CALIBRATION_SCALES = (0.5, 1.0)

StartServer = Callable[[ServerConfig, Path], LlamaServer]
"""Makes a server with a configuration and a log file; not started yet."""


def reference_config(config: ServerConfig, model: Model) -> ServerConfig:
    """A scenario's configuration, as far as it decides numbers: one slot, nothing to reuse from."""
    return replace(
        config,
        adapters=tuple(LoadedAdapter(file.path, 0.0) for file in model.adapters.values()),
        parallel=1,
        cache_ram=0,
        kv_unified=None,
        cache_idle_slots=None,
        cache_reuse=None,
        ctx_checkpoints=None,
        checkpoint_min_step=None,
        embeddings=None,
        slot_save_path=None,
        slot_prompt_similarity=None,
        alias=None,
    )


@dataclass(slots=True)
class Reference:
    """Cold runs in one configuration, and how far right answers may be from them.

    What goes wrong here says nothing about reuse: it is `ReferenceTrouble`.
    """

    config: ServerConfig
    """A `reference_config`."""
    model: Model
    make_server: StartServer
    directory: Path
    quiet: bool
    """Whether the noise of this configuration is known and need not be measured."""
    _server: LlamaServer | None = None
    _last: Setting = field(default_factory=Setting)
    """What the server was asked under the last time, or started with."""
    _replies: dict[object, Reply] = field(default_factory=dict, repr=False)
    _tolerances: dict[bool, Tolerance] = field(default_factory=dict)

    def cold(
        self,
        route: Route,
        prompt: Prompt,
        setting: Setting,
        timeout: float,
        *,
        n_predict: int = Options().n_predict,
    ) -> Reply:
        """The reply of a server that cannot reuse anything; asked once a request."""
        key = (route, prompt, setting, n_predict)
        if key not in self._replies:
            options = Options(
                lora=self._lora_field(setting), cache_prompt=False, n_predict=n_predict
            )
            self._replies[key] = self._ask_cold(route, prompt, setting, options, timeout)
        return self._replies[key]

    def tolerance(self, timeout: float, *, adapters: bool = True) -> Tolerance:
        """How far right answers may be from cold ones; measured once, where it is not known.

        With or without the model's adapters.
        """
        if self.quiet:
            return Tolerance()
        if adapters not in self._tolerances:
            self._tolerances[adapters] = self._measured(timeout, adapters=adapters)
        return self._tolerances[adapters]

    def close(self) -> None:
        """Ends the server."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def _ask_cold(
        self, route: Route, prompt: Prompt, setting: Setting, options: Options, timeout: float
    ) -> Reply:
        watch = Stopwatch(timeout)
        try:
            server = self._server or self._started(Setting())
            changed, self._last = self._last != setting, setting
            try:
                with watch:
                    reply = send(server.client, route, prompt, options, watch.left)
            except Disconnected as error:
                if not changed or not isinstance(server.cause(error), ServerExited):
                    raise
                # It died of a change of scales, which is not what a cold run is about: a server
                # that has had these from the start need not change any.
                self.close()
                with watch:
                    client = self._started(setting).client
                    reply = send(client, route, prompt, options, watch.left)
        except (RequestError, ServerError) as error:
            raise self._trouble(error) from error
        if reply.timings.cache_n:
            raise ReferenceTrouble(
                f"a cold run reused {reply.timings.cache_n} tokens",
                hint="this build does not honour cache_prompt: false",
            )
        if not reply.tokens:
            raise ReferenceTrouble("a cold run reports no token probabilities")
        return reply

    def _started(self, setting: Setting) -> LlamaServer:
        """A new server, with these scales server-wide from the start."""
        self._last = setting
        self._server = self.make_server(self._under(setting), self.directory / "cold.log")
        try:
            self._server.start()
        except BaseException:
            self._server = None
            raise
        return self._server

    def _under(self, setting: Setting) -> ServerConfig:
        scales = setting.as_dict()
        loaded = zip(self.model.adapters, self.config.adapters, strict=True)
        adapters = (LoadedAdapter(a.path, scales.get(letter, 0.0)) for letter, a in loaded)
        return replace(self.config, adapters=tuple(adapters))

    def _trouble(self, error: RequestError | ServerError) -> ReferenceTrouble:
        """Why no cold run could be had; the next one gets a new server."""
        if self._server is not None and isinstance(error, RequestError):
            error = self._server.cause(error)
        self.close()
        return ReferenceTrouble(f"no cold run: {error.message}", detail=error.detail)

    def _measured(self, timeout: float, *, adapters: bool) -> Tolerance:
        """Right reuse (live, in one slot, under one unchanged setting) against cold runs."""
        prompt = prose("calibration", 400)
        longer = prompt + " and on"
        settings = [Setting()]
        for letter in self.model.adapters if adapters else ():
            settings += [Setting.of({letter: scale}) for scale in _CALIBRATION_SCALES]
        cold = [
            self.cold(Route.COMPLETION, longer, setting, timeout).tokens[0] for setting in settings
        ]
        other = self.cold(Route.COMPLETION, prose("other text", 400), Setting(), timeout)
        try:
            apart = [
                difference(first, warm)
                for setting, first in zip(settings, cold, strict=True)
                for warm in self._reused(prompt, longer, setting, timeout)
            ]
        except (RequestError, ServerError) as error:
            raise ReferenceTrouble(f"no control: {error.message}", detail=error.detail) from error
        firsts = [*cold, other.tokens[0]]
        signal = min(difference(a, b) for i, a in enumerate(firsts) for b in firsts[:i])
        return Tolerance.of_control(max(apart, default=None), signal)

    def _reused(
        self, prompt: Prompt, longer: Prompt, setting: Setting, timeout: float
    ) -> Iterator[TokenProbs]:
        """Right answers to `longer`: some of its tokens read, just one, and many.

        By a server that never had another setting. What each reuses was computed from nothing just
        before. An answer for which nothing was reused is a cold one, and shows no noise.
        """
        lora = self._lora_field(setting)
        half = Prompt((prompt.text[: len(prompt.text) // 2],))
        with self.make_server(self._under(setting), self.directory / "control.log") as server:
            for before in (prompt, longer, half):
                fresh = Options(lora=lora, cache_prompt=False, n_predict=1)
                send(server.client, Route.COMPLETION, before, fresh, timeout)
                reply = send(server.client, Route.COMPLETION, longer, Options(lora=lora), timeout)
                if reply.timings.cache_n:
                    yield reply.tokens[0]

    def _lora_field(self, setting: Setting) -> list[tuple[int, float]]:
        """A `lora` field that states every adapter of the model."""
        scales = setting.as_dict()
        return [(i, scales.get(letter, 0.0)) for i, letter in enumerate(self.model.adapters)]


def send(
    client: Client,
    route: Route,
    prompt: Prompt,
    options: Options,
    timeout: float,
    *,
    stream: bool = False,
) -> Reply:
    """Sends a prompt on its route."""
    if route is Route.CHAT:
        return client.chat(prompt.messages, options, stream=stream, timeout=timeout)
    if route is Route.V1_COMPLETIONS:
        return client.completions(prompt.text, options, stream=stream, timeout=timeout)
    return client.completion(prompt.text, options, stream=stream, timeout=timeout)
