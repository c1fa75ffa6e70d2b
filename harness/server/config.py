"""How one llama-server is started: a frozen dataclass, turned into argv by pure functions."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from harness.errors import UsageProblem
from harness.server.capabilities import Capabilities


@dataclass(frozen=True, slots=True)
class LoadedAdapter:
    """A LoRA file the server loads, and the scale it has server-wide from the start."""

    path: Path
    scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Everything the command line of one server says. None leaves a flag out (server default)."""

    model: Path
    adapters: tuple[LoadedAdapter, ...] = ()
    parallel: int | None = None
    ctx_size: int | None = None
    batch_size: int | None = None
    ubatch_size: int | None = None
    threads: int | None = None
    threads_batch: int | None = None
    cache_ram: int | None = None
    """MiB; 0 switches the host-RAM prompt cache off."""
    kv_unified: bool | None = None
    cache_idle_slots: bool | None = None
    slot_save_path: Path | None = None
    slot_prompt_similarity: float | None = None
    swa_full: bool | None = None
    ctx_checkpoints: int | None = None
    checkpoint_min_step: int | None = None
    cache_reuse: int | None = None
    flash_attn: str | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    device: str | None = None
    gpu_layers: int | None = None
    cache_prompt: bool | None = None
    embeddings: bool | None = None
    override_kv: str | None = None
    """`KEY=TYPE:VALUE`: what to read there in the model's metadata."""
    warmup: bool | None = False
    fit: str | None = "off"
    offline: bool | None = True
    slots: bool | None = True
    metrics: bool | None = True
    alias: str | None = None
    """A nonce: `/props` gives it back, which proves who answers."""
    extra_args: tuple[str, ...] = ()
    """The user's own words, last on the command line."""


class ConfigFields(TypedDict, total=False):
    """The fields a scenario may require, as keyword arguments."""

    parallel: int
    ctx_size: int
    batch_size: int
    ubatch_size: int
    threads: int
    threads_batch: int
    cache_ram: int
    kv_unified: bool
    cache_idle_slots: bool
    slot_save_path: Path
    slot_prompt_similarity: float
    swa_full: bool
    ctx_checkpoints: int
    checkpoint_min_step: int
    cache_reuse: int
    flash_attn: str
    cache_type_k: str
    cache_type_v: str
    device: str
    gpu_layers: int
    cache_prompt: bool
    embeddings: bool
    slots: bool
    metrics: bool


@dataclass(frozen=True, slots=True)
class Flag:
    """One row of the mapping: how a field of `ServerConfig` is written on the command line."""

    on: str
    off: str | None = None
    """What False writes; a flag without it is just left out then."""
    unlimited: str | None = None
    """Of a flag that says how much there is of something: the value that sets no limit.

    A scenario that requires some is as well served by more.
    """
    repeats: bool = False
    """The user may give it too, and both count."""
    optional: bool = False
    """A convenience that is left out on a build that lacks it, rather than needed by a scenario."""


# Verbosity, host, port and log format are not here: they are the harness's own (`_FIXED`).
FLAGS: Mapping[str, Flag] = {
    "model": Flag("--model"),
    "adapters": Flag("--lora-scaled"),
    "parallel": Flag("--parallel"),
    "ctx_size": Flag("--ctx-size", unlimited="0"),
    "batch_size": Flag("--batch-size"),
    "ubatch_size": Flag("--ubatch-size"),
    "threads": Flag("--threads"),
    "threads_batch": Flag("--threads-batch"),
    "cache_ram": Flag("--cache-ram", unlimited="-1"),
    "kv_unified": Flag("--kv-unified", off="--no-kv-unified"),
    "cache_idle_slots": Flag("--cache-idle-slots", off="--no-cache-idle-slots"),
    "slot_save_path": Flag("--slot-save-path"),
    "slot_prompt_similarity": Flag("--slot-prompt-similarity"),
    "swa_full": Flag("--swa-full"),
    "ctx_checkpoints": Flag("--ctx-checkpoints"),
    "checkpoint_min_step": Flag("--checkpoint-min-step"),
    "cache_reuse": Flag("--cache-reuse"),
    "flash_attn": Flag("--flash-attn"),
    "cache_type_k": Flag("--cache-type-k"),
    "cache_type_v": Flag("--cache-type-v"),
    "device": Flag("--device"),
    "gpu_layers": Flag("--n-gpu-layers"),
    "cache_prompt": Flag("--cache-prompt", off="--no-cache-prompt"),
    "embeddings": Flag("--embeddings"),
    "override_kv": Flag("--override-kv", repeats=True, optional=True),
    "warmup": Flag("--warmup", off="--no-warmup", optional=True),
    "fit": Flag("--fit", optional=True),
    "offline": Flag("--offline", optional=True),
    "slots": Flag("--slots", off="--no-slots", optional=True),
    "metrics": Flag("--metrics", optional=True),
    "alias": Flag("--alias"),
}

CTX_SIZE = 8192
"""The context that scenarios need, but for some that say what they need."""
DEFAULT_SIMILARITY = 0.1
"""llama-server's own `--slot-prompt-similarity`."""
CPU = "none"
"""The `device` of a server that is to use no GPU."""

_INTEGER = re.compile(r"\s*([+-]?\d+)")
_FLAG_LIKE = re.compile(r"--|-[A-Za-z]")
"""A word that can be no value; a negative number can."""

# Where the harness finds, identifies and reads the server: no user may set these.
_RESERVED: Mapping[str, str] = {
    "--model": "use --llama-model",
    "--model-url": "use --llama-model",
    "--hf-repo": "use --llama-model",
    "--docker-repo": "use --llama-model",
    "--lora": "use --llama-lora",
    "--lora-scaled": "use --llama-lora",
    "--alias": "the harness knows its server by it",
    "--host": "servers listen on loopback",
    "--port": "ports are chosen by the system",
    "--slot-save-path": "scenarios keep slot files in directories of their own",
    "--verbose": "it would log prompts",
    "--verbosity": "the harness picks the level that shows decisions and no prompt text",
    "--log-file": "use --llama-keep to keep logs",
    "--log-disable": "the log explains failures",
    "--log-prompts-dir": "it would log prompts",
    "--ssl-key-file": "the harness speaks plain HTTP on loopback",
    "--ssl-cert-file": "the harness speaks plain HTTP on loopback",
    "--api-key": "servers listen on loopback only",
    "--api-key-file": "servers listen on loopback only",
    "--api-prefix": "the harness asks at the root",
    "--list-devices": "run the binary yourself",
    "--cache-list": "run the binary yourself",
    "--completion-bash": "run the binary yourself",
    "--help": "run the binary yourself",
    "--version": "run the binary yourself",
}


def argv(config: ServerConfig, capabilities: Capabilities) -> tuple[str, ...]:
    """The arguments after the program's name, for a build with these `capabilities`.

    A field whose flag is also among `extra_args` gives way to the user's words.
    """
    ours = ("-lv", str(capabilities.log_level), "--log-colors", "off")
    return ("--host", "127.0.0.1", "--port", "0", *ours, *flags_of(config, capabilities))


def flags_of(config: ServerConfig, capabilities: Capabilities) -> tuple[str, ...]:
    """The same without what says where to listen and what to log."""
    given = user_flags(config.extra_args, capabilities)
    words: list[str] = []
    for name, flag in FLAGS.items():
        written = list(_written(flag, getattr(config, name)))
        if not written or (capabilities.spellings(flag.on)[0] in given and not flag.repeats):
            continue
        if flag.optional and not capabilities.supports(written[0]):
            continue
        words += written
    return (*words, *config.extra_args)


def on_cpu(config: ServerConfig, capabilities: Capabilities) -> bool:
    """Whether a server with this configuration is to use no GPU, the user's words included."""
    given = user_flags(config.extra_args, capabilities)
    words = given.get(capabilities.spellings(FLAGS["device"].on)[0])
    return (words[-1] if words else config.device) == CPU


def lacking(
    config: ServerConfig, capabilities: Capabilities, required: Collection[str] = ()
) -> tuple[str, ...]:
    """Flags this configuration needs and the build does not know.

    A flag that is a mere convenience is needed where its field is `required`.
    """
    written = (
        _written(flag, getattr(config, name))
        for name, flag in FLAGS.items()
        if not flag.optional or name in required
    )
    return tuple(words[0] for words in written if words and not capabilities.supports(words[0]))


def contradictions(
    config: ServerConfig,
    required: Iterable[str],
    capabilities: Capabilities,
    *,
    started: bool = False,
) -> tuple[str, ...]:
    """Where the user's `extra_args` say otherwise than the fields a scenario requires.

    One text a contradiction, naming both: "needs --parallel 1, --llama-arg gives -np 4". With
    `started` these words are what a server runs with, which no word of ours can be added to.
    """
    gives = "the server was started with" if started else "--llama-arg gives"
    given = user_flags(config.extra_args, capabilities)
    clashes: list[str] = []
    missing: list[str] = []
    for name in required:
        flag, value = FLAGS[name], getattr(config, name)
        users = given.get(capabilities.spellings(flag.on)[0])
        written = _written(flag, value)
        if users is None:
            missing += written
        elif not _same(flag, value, users):
            needs = shlex.join(written) or f"no {flag.on}"
            clashes.append(f"needs {needs}, {gives} {shlex.join(users)}")
    if started and missing:
        clashes.append(f"needs {shlex.join(missing)}, the server was started without")
    return tuple(clashes)


def user_flags(words: Sequence[str], capabilities: Capabilities) -> dict[str, tuple[str, ...]]:
    """The user's flags, by the first spelling of each, with the words as given.

    Values are not checked here: `check_values` does that once. Raises `UsageProblem` for a word
    that belongs to no flag, one the build does not know, or one that is the harness's own.
    """
    _check_none_reserved(words, capabilities)
    flags = grouped(words, capabilities, "--llama-arg")
    return {capabilities.spellings(flag[0])[0]: flag for flag in flags}


def check_values(words: Sequence[str], capabilities: Capabilities) -> None:
    """Refuse values that the build's `--help` rules out, and a context too small for scenarios.

    All that is wrong is named in one line. Without this check the server would end at once, or
    no scenario would be tested.
    """
    flags = grouped(words, capabilities, "--llama-arg")
    takes = ((capabilities.takes(flag[0]), flag) for flag in flags)
    wrong = [said for values, flag in takes if values and (said := values.problem(flag))]
    hints = [f"{capabilities.version}; see its --help"] if wrong else []
    if small := _too_small(user_flags(words, capabilities), capabilities):
        wrong.append(f"{small} is too small: scenarios need {CTX_SIZE} tokens of context")
        hints.append(f"leave {'it' if len(wrong) == 1 else small} out, or give at least {CTX_SIZE}")
    if wrong:
        raise UsageProblem(f"--llama-arg: {'; '.join(wrong)}", hint="; ".join(hints))


def _too_small(given: Mapping[str, tuple[str, ...]], capabilities: Capabilities) -> str:
    """Return the user's words for a context that is too small; empty where there are none.

    0 stands for the model's own.
    """
    flag = given.get(capabilities.spellings(FLAGS["ctx_size"].on)[0], ())
    # As the server reads it: digits, whatever comes after them.
    tokens = _INTEGER.match(flag[1]) if len(flag) == 2 else None
    return shlex.join(flag) if tokens and 0 < int(tokens[1]) < CTX_SIZE else ""


def grouped(
    words: Sequence[str], capabilities: Capabilities, said_by: str
) -> tuple[tuple[str, ...], ...]:
    """Each flag with its values, in the order given.

    Raises `UsageProblem` for a word that belongs to no flag, or one the build does not know.
    """
    found: list[tuple[str, ...]] = []
    for word in words:
        if capabilities.supports(word):
            found.append((word,))
        elif found and not _FLAG_LIKE.match(word):
            found[-1] = (*found[-1], word)
        else:
            raise UsageProblem(
                f"{said_by}: this llama-server has no flag {word}",
                hint=f"{capabilities.version}; see its --help",
            )
    return tuple(found)


def without(
    words: Sequence[str], fields: Iterable[str], capabilities: Capabilities
) -> tuple[str, ...]:
    """A user's words but for the flags of these fields."""
    theirs = {capabilities.spellings(FLAGS[name].on)[0] for name in fields}
    flags = grouped(words, capabilities, "--llama-arg")
    kept = (flag for flag in flags if capabilities.spellings(flag[0])[0] not in theirs)
    return tuple(word for flag in kept for word in flag)


def reserved(word: str, capabilities: Capabilities) -> str:
    """Why a flag is the harness's own; empty where it is not."""
    spellings = capabilities.spellings(word)
    return next((why for flag, why in _RESERVED.items() if flag in spellings), "")


def check_adapter_path(path: Path) -> None:
    """Raises `UsageProblem` for a path llama-server would take apart."""
    if ":" in str(path) or "," in str(path):
        raise UsageProblem(
            f"{path}: llama-server cannot load an adapter whose path has ':' or ','",
            hint="put it elsewhere; XDG_CACHE_HOME moves generated ones, HF_HOME fetched ones",
        )


def _check_none_reserved(words: Iterable[str], capabilities: Capabilities) -> None:
    """Names all that are the harness's own, so that a pasted command line is put right at once."""
    reasons = {word: why for word in words if (why := reserved(word, capabilities))}
    if reasons:
        them = "it" if len(reasons) == 1 else "them"
        raise UsageProblem(
            f"--llama-arg may not give {', '.join(reasons)}",
            hint=f"leave {them} out: {'; '.join(dict.fromkeys(reasons.values()))}",
        )


def _written(flag: Flag, value: object) -> tuple[str, ...]:
    if value is None or value == ():
        return ()
    if value is True:
        return (flag.on,)
    if value is False:
        return (flag.off,) if flag.off else ()
    if isinstance(value, tuple):
        return (flag.on, ",".join(_lora_scaled(adapter) for adapter in value))
    return (flag.on, str(value))


def _lora_scaled(adapter: LoadedAdapter) -> str:
    check_adapter_path(adapter.path)
    return f"{adapter.path}:{adapter.scale}"


def _same(flag: Flag, value: object, users: tuple[str, ...]) -> bool:
    if flag.unlimited is not None and isinstance(value, int) and value > 0 and len(users) == 2:
        said = users[1]
        return said == flag.unlimited or (said.isdecimal() and int(said) >= value)
    written = _written(flag, value)
    if len(users) == 1:  # a switch: on or off
        return bool(written) and _negative(users[0]) == _negative(written[0])
    return len(written) == len(users) and written[1:] == users[1:]


def _negative(word: str) -> bool:
    return word.lstrip("-").startswith("no-")
