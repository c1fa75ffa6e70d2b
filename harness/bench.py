"""What the scenarios of one session on one build share: the program, the model, the reference."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Unpack
from urllib.parse import urlsplit

from harness.client import Client
from harness.errors import (
    DoesNotStart,
    NotTestable,
    OtherServerNeeded,
    ServerError,
    Unsupported,
)
from harness.models.spec import Model
from harness.prompts import Prompt, Route
from harness.reasons.course import Rules
from harness.reference import Reference, reference_config
from harness.server.attached import Attached, AttachedServer
from harness.server.config import (
    CPU,
    CTX_SIZE,
    DEFAULT_SIMILARITY,
    ConfigFields,
    LoadedAdapter,
    ServerConfig,
    contradictions,
    flags_of,
    lacking,
    user_flags,
    without,
)
from harness.server.guard import Guard
from harness.server.process import LlamaServer, Program, ServerExited, ServerNotReady
from harness.start_failures import StartFailures

_ALL_LAYERS = 999
_BATCH = 2048
# The smaller a micro-batch, the more of a short prompt can memory that cannot rewind be held to.
_UBATCH, _UBATCH_WITH_CHECKPOINTS = 512, 64

_STARTS = 5
"""llama-server logs from another thread, and may end before its last lines are written."""

ServerUnderTest = LlamaServer | AttachedServer
"""The server of a scenario; those of cold runs are always our own."""


@dataclass(slots=True)
class Bench:
    """Starts servers for scenarios on one program and model. One per process; `close` it."""

    program: Program
    model: Model
    guard: Guard
    directory: Path
    """For logs of the reference."""
    seconds: float
    """How long a server may take to get ready."""
    device: str | None = None
    """`--device` of every server; None leaves it to the build."""
    extra_args: tuple[str, ...] = ()
    """The user's own server arguments."""
    attached: Attached | None = None
    """The server of scenarios, where a person has started it; `extra_args` are its words."""
    starts: StartFailures | None = None
    """What the processes of a run know of servers that do not start; None where there is one."""
    _reference: Reference | None = None
    _prompt_tokens: dict[object, tuple[int, ...]] = field(default_factory=dict, repr=False)

    def config(
        self, adapters: Mapping[str, float], **required: Unpack[ConfigFields]
    ) -> ServerConfig:
        """A configuration with these adapters loaded, at these server-wide scales.

        What `required` does not say is as the comparison with a cold run wants it. Raises
        `NotTestable` where the build, the model or the user's own arguments do not allow it.
        """
        missing = [letter for letter in adapters if letter not in self.model.adapters]
        if missing:
            raise NotTestable(
                f"needs adapter {', '.join(missing)}: see --llama-lora and llama-harness make-lora"
            )
        loaded = tuple(
            LoadedAdapter(self.model.adapters[letter].path, scale)
            for letter, scale in adapters.items()
        )
        defaults = replace(self._defaults(), adapters=loaded, extra_args=self.extra_args)
        fields: ConfigFields = {"ctx_size": CTX_SIZE, **required}
        return self.changed(defaults, **fields)

    def changed(self, config: ServerConfig, **required: Unpack[ConfigFields]) -> ServerConfig:
        """A configuration with other values for these fields. Raises `NotTestable` as above."""
        changed = replace(config, **required)
        changed = replace(changed, override_kv=self._trained_for(changed.ctx_size))
        capabilities = self.program.capabilities
        if lacks := lacking(changed, capabilities, required):
            raise Unsupported(f"the build has no {', '.join(lacks)}")
        if self.attached is not None:
            self._check_attached(self.attached, changed, required)
        elif clashes := contradictions(changed, required, capabilities):
            raise NotTestable("; ".join(clashes))
        return changed

    def check_starts(self, config: ServerConfig) -> None:
        """Raise `NotTestable` where the run knows that this server does not start."""
        keys = (self._any_server(), self._exactly(config))
        known = (self.starts.reason(key) for key in keys) if self.starts else ()
        if reason := next(filter(None, known), None):
            raise NotTestable(reason)

    def start_failed(self, config: ServerConfig, error: ServerError) -> None:
        """Find out what it is that does not start, and say so: raises `DoesNotStart`.

        That is every server with this model and the user's flags, or this configuration alone.
        Raises `NotTestable` where another process of the run has said it already.
        """
        if self.starts is None or not isinstance(error, ServerExited | ServerNotReady):
            return
        plain = replace(self._usual(), extra_args=self.extra_args)
        again = self._start_error(plain)
        key, words = self._any_server(), list(self.extra_args)
        if again is None:
            key, words = self._exactly(config), _beyond(self._flags(config), self._flags(plain))
            again = self._start_error(config)
            if again is None:  # it starts after all: the machine had other things to do
                return
        errors = [error, again]
        while isinstance(again, ServerExited) and not _said(errors) and len(errors) < _STARTS:
            again = self._start_error(config)
            errors += [again] if again else []
        given = f" with {shlex.join(words)}" if words else ""
        reason = f"{self.model.name} does not start{given}: {_why(errors)}"
        if not self.starts.add(key, reason):
            raise NotTestable(self.starts.reason(key) or reason) from None
        raise DoesNotStart(reason, detail=error.detail) from None

    def _start_error(self, config: ServerConfig) -> ServerError | None:
        """Start a server and end it; return why it does not start, None where it does."""
        try:
            with self.server(config, self.directory / "start.log"):
                return None
        except ServerError as error:
            return error

    def _any_server(self) -> tuple[str, ...]:
        """Name all servers of a run with this build and model."""
        return str(self.program.binary), self.model.name

    def _exactly(self, config: ServerConfig) -> tuple[str, ...]:
        """Name servers with this configuration."""
        return (*self._any_server(), *self._flags(config))

    def _flags(self, config: ServerConfig) -> tuple[str, ...]:
        """Return the flags of a configuration, but for a directory that is each scenario's own."""
        return flags_of(replace(config, slot_save_path=None), self.program.capabilities)

    def under_test(self, config: ServerConfig, log_path: Path) -> ServerUnderTest:
        """The server of a scenario: a new one, or the one that a person has started."""
        if self.attached is None:
            return self.server(config, log_path)
        return AttachedServer(self.attached, self.program, config, ready_seconds=self.seconds)

    def server(self, config: ServerConfig, log_path: Path) -> LlamaServer:
        """A server with this configuration, not started yet."""
        return LlamaServer(
            self.program,
            config,
            guard=self.guard,
            log_path=log_path,
            ready_seconds=self.seconds,
        )

    def tokens(
        self, client: Client, route: Route, prompt: Prompt, timeout: float
    ) -> tuple[int, ...]:
        """The prompt as this build tokenizes it; asked once a prompt."""
        key = (route, prompt)
        if key not in self._prompt_tokens:
            chat = route is Route.CHAT
            text = client.apply_template(prompt.messages, timeout=timeout) if chat else prompt.text
            self._prompt_tokens[key] = client.tokenize(text, timeout=timeout)
        return self._prompt_tokens[key]

    def ubatch(self, config: ServerConfig) -> int:
        """The micro-batch of a server, the user's word included: no more than a batch."""
        micro = self._size("--ubatch-size", config.ubatch_size or _UBATCH)
        return min(micro, self._size("--batch-size", config.batch_size or _BATCH))

    def rules(self, config: ServerConfig) -> Rules:
        """What a server chooses by, the user's word included."""
        said = self._said("--slot-prompt-similarity")
        ours = config.slot_prompt_similarity
        similarity = DEFAULT_SIMILARITY if ours is None else ours
        cache_ram = self._said("--cache-ram") or str(config.cache_ram)
        with suppress(ValueError):
            similarity = float(said)
        return Rules(similarity, prompt_cache=cache_ram != "0")

    def _size(self, flag: str, ours: int) -> int:
        """What the user's own arguments say of a size, or else what we do."""
        said = self._said(flag)
        return int(said) if said.isdecimal() else ours

    def _said(self, flag: str) -> str:
        """The value the user's own arguments give a flag; empty where they do not."""
        capabilities = self.program.capabilities
        given = user_flags(self.extra_args, capabilities)
        return next(reversed(given.get(capabilities.spellings(flag)[0], ())), "")

    def says(self, flag: str) -> bool:
        """Whether the user's own arguments give this flag."""
        capabilities = self.program.capabilities
        given = user_flags(self.extra_args, capabilities)
        return capabilities.spellings(flag)[0] in given

    def reference(self, config: ServerConfig) -> Reference:
        """Cold runs for a scenario with this configuration. The last one's server is kept."""
        wanted = reference_config(config, self.model)
        if self._reference is None or self._reference.config != wanted:
            self.close()
            self._reference = Reference(
                config=wanted,
                model=self.model,
                make_server=self.server,
                directory=self.directory,
                quiet=self._is_quiet(wanted),
            )
        return self._reference

    def close(self) -> None:
        """Ends the reference's server."""
        if self._reference is not None:
            self._reference.close()
            self._reference = None

    def _check_attached(
        self, attached: Attached, config: ServerConfig, required: ConfigFields
    ) -> None:
        """Raises `NotTestable` unless a server was started as a configuration requires."""
        if config.slot_save_path is not None:
            raise NotTestable("slot files are not tested on a server that was attached to")
        names = [*required, *(["override_kv"] if config.override_kv else [])]
        capabilities = self.program.capabilities
        clashes = contradictions(config, names, capabilities, started=True)
        if clashes := (*clashes, *attached.unlike(config)):
            wanted = replace(
                self._usual(),
                adapters=config.adapters,
                override_kv=config.override_kv,
                extra_args=without(self.extra_args, required, capabilities),
            )
            words = flags_of(replace(wanted, **required), capabilities)
            port = str(urlsplit(attached.url).port)
            # Its log is for whoever reads it: at the level that shows decisions.
            where = ("--port", port, "-lv", str(capabilities.log_level))
            command = (str(self.program.binary), *where, *words)
            raise OtherServerNeeded("; ".join(clashes), command=command)

    def _defaults(self) -> ServerConfig:
        """What a configuration says that requires nothing.

        Nothing where a server was attached to: what it was not told it has chosen itself.
        """
        if self.attached is not None:
            return ServerConfig(model=self.model.file.path, fit=None)
        return self._usual()

    def _usual(self) -> ServerConfig:
        """Where cached and cold runs differ least: one thread, no flash attention, KV as usual."""
        return ServerConfig(
            model=self.model.file.path,
            threads=1,
            threads_batch=1,
            batch_size=_BATCH,
            ubatch_size=_UBATCH if self.model.memory.rewinds else _UBATCH_WITH_CHECKPOINTS,
            ctx_size=CTX_SIZE,
            flash_attn="off",
            cache_type_k="f16",
            cache_type_v="f16",
            device=self.device,
            gpu_layers=None if self.device in (None, CPU) else _ALL_LAYERS,
        )

    def _trained_for(self, tokens: int | None) -> str | None:
        """What lets a model see more than it was trained for, where scenarios do.

        llama-server cuts slots down to that. Beyond it answers are poor, and no less exact.
        """
        trained = self.model.trained
        if trained is None or tokens is None or trained.tokens >= tokens:
            return None
        if any(trained.key in word for word in self.extra_args):  # the user's word
            return None
        return f"{trained.key}=int:{tokens}"

    def _is_quiet(self, config: ServerConfig) -> bool:
        """Whether noise is known: a generated model on the CPU, with the numbers' own defaults."""
        on_cpu = config.device == CPU or not self.program.capabilities.devices
        usual = reference_config(self._usual(), self.model)
        as_measured = replace(config, ctx_size=usual.ctx_size) == usual
        return self.model.oracle is not None and on_cpu and as_measured


def _said(errors: Sequence[ServerError]) -> str:
    """Return the first error that a server logged before it ended; empty where none did."""
    exits = (error for error in errors if isinstance(error, ServerExited))
    return next((error.why for error in exits if error.why), "")


def _why(errors: Sequence[ServerError]) -> str:
    """Say why a server does not start: its own first error, and how it ended unless in order."""
    first, said = errors[0], _said(errors)
    if said and isinstance(first, ServerExited) and first.returncode > 0:
        return said
    how = first.message
    if isinstance(first, ServerExited):
        how = how.partition(": ")[0]
    return f"{said} ({how})" if said else how


def _beyond(flags: Sequence[str], usual: Sequence[str]) -> list[str]:
    """Return the words of a command line that another one does not have, flags with their values.

    Adapters are left out: their paths are long, and every scenario has its own.

    `--model` and what else both have is left out.
    """
    groups, theirs = _groups(flags), _groups(usual)
    new = [group for group in groups if group not in theirs and group[0] != "--lora-scaled"]
    return [word for group in new for word in group]


def _groups(words: Sequence[str]) -> list[tuple[str, ...]]:
    groups: list[tuple[str, ...]] = []
    for word in words:
        if not groups or (word.startswith("-") and not word[1:2].isdigit()):
            groups.append((word,))
        else:
            groups[-1] = (*groups[-1], word)
    return groups
