"""What the scenarios of one session on one build share: the program, the model, the cold server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.answers import Tolerance, difference
from harness.client import Client, Options
from harness.errors import RequestError
from harness.models.spec import Model
from harness.prompts import Prompt, Route, prose
from harness.replies import Reply
from harness.server.config import LoadedAdapter, ServerConfig
from harness.server.guard import Guard
from harness.server.process import LlamaServer, Program
from harness.setting import Setting

_CALIBRATION_SCALES = (0.0, 0.5, 1.0)


@dataclass(slots=True)
class Bench:
    """Starts servers for scenarios on one program and model, and answers what a cold run says.

    One per process: its cold server is kept until `close`.
    """

    program: Program
    model: Model
    guard: Guard
    directory: Path
    """For logs and slot files."""
    extra_args: tuple[str, ...] = ()
    """The user's own server arguments."""
    _cold: LlamaServer | None = None
    _cold_replies: dict[object, Reply] = field(default_factory=dict)
    _prompt_tokens: dict[object, tuple[int, ...]] = field(default_factory=dict)
    _tolerance: Tolerance | None = None

    def config(self, adapters: Mapping[str, float], **required: object) -> ServerConfig:
        """A configuration with these adapters loaded, at these server-wide scales.

        What `required` does not say is as the comparison with a cold run wants it: one thread, no
        flash attention, the same batch sizes everywhere.
        """
        defaults: dict[str, object] = {
            "threads": 1,
            "threads_batch": 1,
            "batch_size": 2048,
            "ubatch_size": 512,
            "ctx_size": 8192,
            "flash_attn": "off",
        }
        loaded = tuple(
            LoadedAdapter(self.model.adapters[letter].path, scale)
            for letter, scale in adapters.items()
        )
        return ServerConfig(
            model=self.model.file.path,
            adapters=loaded,
            extra_args=self.extra_args,
            **{**defaults, **required},  # type: ignore[arg-type]  # checked by the dataclass's use
        )

    def server(self, config: ServerConfig, log_path: Path) -> LlamaServer:
        """A server with this configuration, not started yet."""
        return LlamaServer(self.program, config, guard=self.guard, log_path=log_path)

    def tokens(self, client: Client, route: Route, prompt: Prompt) -> tuple[int, ...]:
        """The prompt as this build tokenizes it; asked once a prompt."""
        key = (route, prompt)
        if key not in self._prompt_tokens:
            chat = route is Route.CHAT
            text = client.apply_template(prompt.messages) if chat else prompt.text
            self._prompt_tokens[key] = client.tokenize(text)
        return self._prompt_tokens[key]

    def cold(self, route: Route, prompt: Prompt, setting: Setting, timeout: float) -> Reply:
        """The reply of a server that cannot reuse anything; asked once a request."""
        key = (route, prompt, setting)
        if key not in self._cold_replies:
            options = Options(lora=self.lora_field(setting), cache_prompt=False)
            server = self._cold_server()
            try:
                reply = send(server.client, route, prompt, options, timeout)
            except RequestError as error:
                cause = server.cause(error)
                self.close()  # the next cold run gets a server that works
                raise cause from error
            self._cold_replies[key] = reply
        return self._cold_replies[key]

    def lora_field(self, setting: Setting) -> list[tuple[int, float]]:
        """A `lora` field that states every adapter of the model."""
        scales = setting.as_dict()
        return [(i, scales.get(letter, 0.0)) for i, letter in enumerate(self.model.adapters)]

    def tolerance(self, timeout: float) -> Tolerance:
        """How far right answers may be from cold ones.

        Known for a generated model on the CPU with the harness's own flags; otherwise measured,
        once, on a control of this build and model.
        """
        if self._tolerance is None:
            known = self.model.oracle and not self.extra_args
            known = known and not self.program.capabilities.devices
            self._tolerance = Tolerance() if known else self._calibrate(timeout)
        return self._tolerance

    def close(self) -> None:
        """Ends the cold server."""
        if self._cold is not None:
            self._cold.stop()
            self._cold = None

    def _cold_server(self) -> LlamaServer:
        if self._cold is None:
            adapters = dict.fromkeys(self.model.adapters, 0.0)
            config = self.config(adapters, parallel=1, cache_ram=0, ctx_size=32768)
            server = self.server(config, self.directory / "cold.log")
            server.start()
            self._cold = server
        return self._cold

    def _calibrate(self, timeout: float) -> Tolerance:
        """Right reuse (live, in one slot, under one unchanged setting) against cold runs."""
        prompt = prose("calibration", 400)
        longer = prompt + " and on"
        settings = [Setting()]
        for letter in self.model.adapters:
            settings += [Setting.of({letter: scale}) for scale in _CALIBRATION_SCALES[1:]]
        noise, firsts = 0.0, []
        adapters = dict.fromkeys(self.model.adapters, 0.0)
        config = self.config(adapters, parallel=1, cache_ram=0)
        with self.server(config, self.directory / "control.log") as server:
            for setting in settings:
                cold = self.cold(Route.COMPLETION, longer, setting, timeout)
                options = Options(lora=self.lora_field(setting))
                send(server.client, Route.COMPLETION, prompt, options, timeout)
                for _ in ("next turn", "identical repeat"):  # many tokens read, and just one
                    warm = send(server.client, Route.COMPLETION, longer, options, timeout)
                    noise = max(noise, difference(cold.tokens[0], warm.tokens[0]))
                firsts.append(cold.tokens[0])
        signal = min(
            (difference(a, b) for i, a in enumerate(firsts) for b in firsts[:i]),
            default=float("inf"),
        )
        return Tolerance(noise, signal)


def send(client: Client, route: Route, prompt: Prompt, options: Options, timeout: float) -> Reply:
    """Sends a prompt on its route."""
    if route is Route.CHAT:
        return client.chat(prompt.messages, options, timeout=timeout)
    return client.completion(prompt.text, options, timeout=timeout)
