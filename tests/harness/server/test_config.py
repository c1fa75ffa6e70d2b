"""The command line of a server: what a configuration writes, and what a user may add to it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from harness.errors import UsageProblem
from harness.server.capabilities import Capabilities
from harness.server.config import (
    FLAGS,
    LoadedAdapter,
    ServerConfig,
    argv,
    check_values,
    contradictions,
    flags_of,
    lacking,
    user_flags,
    without,
)
from harness.server.flag_values import FlagValues

MODEL = Path("model.gguf")

SPELLINGS = """
-h --help --usage
--version
-m --model
--lora
--lora-scaled
-np --parallel
-c --ctx-size
-b --batch-size
-ub --ubatch-size
-t --threads
-tb --threads-batch
-cram --cache-ram
-kvu --kv-unified -no-kvu --no-kv-unified
--cache-idle-slots --no-cache-idle-slots
--slot-save-path
-sps --slot-prompt-similarity
--swa-full
-ctxcp --ctx-checkpoints --swa-checkpoints
-cms --checkpoint-min-step
--cache-reuse
-fa --flash-attn
-ctk --cache-type-k
-ctv --cache-type-v
-dev --device
-ngl --gpu-layers --n-gpu-layers
--cache-prompt --no-cache-prompt
--embeddings
--warmup --no-warmup
-fit --fit
--offline
--slots --no-slots
--metrics
-a --alias
--host
--port
-v --verbose --log-verbose
-lv --verbosity --log-verbosity
--log-file
--log-disable
--api-key
--api-key-file
--api-prefix
--chat-template-kwargs
--override-kv
"""


def capabilities(without: tuple[str, ...] = ()) -> Capabilities:
    """A build with the flags of `SPELLINGS`, except those that have a spelling in `without`."""
    groups = (tuple(line.split()) for line in SPELLINGS.strip().splitlines())
    return Capabilities(
        version="version: 0.1.0-dev (build 1, commit 7e4c0a9)",
        commit="7e4c0a9",
        build_number=None,
        flags=tuple(group for group in groups if not set(group) & set(without)),
        log_level=4,
        devices=(),
    )


BUILD = capabilities()

FIXED = ("--host", "127.0.0.1", "--port", "0", "-lv", "4", "--log-colors", "off")

BARE = ServerConfig(
    model=MODEL, warmup=None, fit=None, offline=None, slots=None, metrics=None, alias=None
)
"""Says as little as there can be said."""

WORDS: dict[str, list[tuple[object, tuple[str, ...]]]] = {
    "model": [(Path("a b.gguf"), ("--model", "a b.gguf"))],
    "adapters": [
        ((), ()),
        ((LoadedAdapter(Path("/x/A.gguf"), 0.0),), ("--lora-scaled", "/x/A.gguf:0.0")),
        (
            (LoadedAdapter(Path("/x/A.gguf"), 1.0), LoadedAdapter(Path("B.gguf"), 0.5)),
            ("--lora-scaled", "/x/A.gguf:1.0,B.gguf:0.5"),
        ),
    ],
    "parallel": [(4, ("--parallel", "4"))],
    "ctx_size": [(8192, ("--ctx-size", "8192"))],
    "batch_size": [(2048, ("--batch-size", "2048"))],
    "ubatch_size": [(512, ("--ubatch-size", "512"))],
    "threads": [(1, ("--threads", "1"))],
    "threads_batch": [(2, ("--threads-batch", "2"))],
    "cache_ram": [(256, ("--cache-ram", "256")), (0, ("--cache-ram", "0"))],
    "kv_unified": [(True, ("--kv-unified",)), (False, ("--no-kv-unified",))],
    "cache_idle_slots": [(True, ("--cache-idle-slots",)), (False, ("--no-cache-idle-slots",))],
    "slot_save_path": [(Path("/slots"), ("--slot-save-path", "/slots"))],
    "slot_prompt_similarity": [(0.5, ("--slot-prompt-similarity", "0.5"))],
    "swa_full": [(True, ("--swa-full",)), (False, ())],
    "ctx_checkpoints": [(0, ("--ctx-checkpoints", "0"))],
    "checkpoint_min_step": [(64, ("--checkpoint-min-step", "64"))],
    "cache_reuse": [(256, ("--cache-reuse", "256"))],
    "flash_attn": [("off", ("--flash-attn", "off"))],
    "cache_type_k": [("q8_0", ("--cache-type-k", "q8_0"))],
    "cache_type_v": [("f16", ("--cache-type-v", "f16"))],
    "device": [("none", ("--device", "none"))],
    "gpu_layers": [(0, ("--n-gpu-layers", "0"))],
    "cache_prompt": [(True, ("--cache-prompt",)), (False, ("--no-cache-prompt",))],
    "embeddings": [(True, ("--embeddings",)), (False, ())],
    "override_kv": [("a.b=int:7", ("--override-kv", "a.b=int:7"))],
    "warmup": [(True, ("--warmup",)), (False, ("--no-warmup",))],
    "fit": [("off", ("--fit", "off"))],
    "offline": [(True, ("--offline",)), (False, ())],
    "slots": [(True, ("--slots",)), (False, ("--no-slots",))],
    "metrics": [(True, ("--metrics",)), (False, ())],
    "alias": [("nonce", ("--alias", "nonce"))],
}
"""For each field: values, and the words each writes."""

FIELDS = {field.name for field in dataclasses.fields(ServerConfig)} - {"extra_args"}


def with_field(name: str, value: object) -> ServerConfig:
    return dataclasses.replace(BARE, **{name: value})  # type: ignore[arg-type]  # one of its fields


def test_every_field_has_a_flag() -> None:
    assert set(FLAGS) == FIELDS


def test_every_field_is_tried_below() -> None:
    assert set(WORDS) == FIELDS


def test_what_counts_beside_the_users_word_is_given_too() -> None:
    ours = with_field("override_kv", "a.b=int:7")
    words = argv(dataclasses.replace(ours, extra_args=("--override-kv", "c.d=str:x")), BUILD)
    assert words.count("--override-kv") == 2


def test_the_least_there_can_be_said() -> None:
    assert argv(BARE, BUILD) == (*FIXED, "--model", "model.gguf")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [(name, value, words) for name, cases in WORDS.items() for value, words in cases],
)
def test_a_field_writes_its_words(name: str, value: object, words: tuple[str, ...]) -> None:
    written = argv(with_field(name, value), BUILD)
    model = () if name == "model" else ("--model", "model.gguf")
    assert written == (*FIXED, *model, *words)


def test_what_a_server_gets_unless_said_otherwise() -> None:
    """No reading ahead, no guessing of sizes, no network, and the routes the harness asks."""
    assert argv(ServerConfig(model=MODEL), BUILD)[len(FIXED) + 2 :] == (
        *("--no-warmup", "--fit", "off", "--offline", "--slots", "--metrics"),
    )


def test_the_log_level_is_the_one_of_the_build() -> None:
    older = dataclasses.replace(BUILD, log_level=3)
    words = argv(BARE, older)
    assert words[words.index("-lv") + 1] == "3"


@pytest.mark.parametrize("path", ["/a:b/A.gguf", "/a,b/A.gguf"], ids=["colon", "comma"])
def test_an_adapter_whose_path_the_server_would_misread(path: str) -> None:
    config = with_field("adapters", (LoadedAdapter(Path(path), 1.0),))
    with pytest.raises(UsageProblem, match="':' or ','") as caught:
        argv(config, BUILD)
    assert path in caught.value.message
    assert caught.value.hint


OPTIONAL = ["--warmup", "--fit", "--offline", "--slots", "--metrics"]


@pytest.mark.parametrize("flag", OPTIONAL)
def test_a_convenience_is_left_out_where_the_build_lacks_it(flag: str) -> None:
    config = ServerConfig(model=MODEL)
    build = capabilities(without=(flag,))
    missing = set(argv(config, BUILD)) - set(argv(config, build))
    assert missing == {
        "--warmup": {"--no-warmup"},
        "--fit": {"--fit"},  # "off" is still there: --log-colors has it too
    }.get(flag, {flag})
    assert lacking(config, build) == ()


def test_a_convenience_that_a_scenario_is_about_is_needed() -> None:
    config, build = ServerConfig(model=MODEL), capabilities(without=("--metrics",))
    assert lacking(config, build, required=("metrics",)) == ("--metrics",)
    assert lacking(config, build, required=("slots",)) == ()


def test_the_value_of_a_convenience_goes_with_it() -> None:
    build = capabilities(without=("--fit",))
    assert argv(ServerConfig(model=MODEL), build).count("off") == FIXED.count("off")


@pytest.mark.parametrize(
    ("name", "value", "flag"),
    [
        ("cache_ram", 256, "--cache-ram"),
        ("cache_ram", 0, "--cache-ram"),
        ("kv_unified", True, "--kv-unified"),
        ("kv_unified", False, "--no-kv-unified"),
        ("swa_full", True, "--swa-full"),
        ("ctx_checkpoints", 4, "--ctx-checkpoints"),
    ],
)
def test_what_a_scenario_needs_and_the_build_lacks(name: str, value: object, flag: str) -> None:
    config = with_field(name, value)
    assert lacking(config, capabilities(without=(flag,))) == (flag,)
    assert lacking(config, BUILD) == ()


def test_a_build_that_knows_only_one_way_of_a_switch() -> None:
    only_on = dataclasses.replace(
        BUILD, flags=(*capabilities(without=("-kvu",)).flags, ("-kvu", "--kv-unified"))
    )
    assert lacking(with_field("kv_unified", True), only_on) == ()
    assert lacking(with_field("kv_unified", False), only_on) == ("--no-kv-unified",)


@pytest.mark.parametrize(("name", "value"), [("cache_ram", None), ("swa_full", False)])
def test_what_is_not_written_lacks_nothing(name: str, value: object) -> None:
    build = capabilities(without=("--cache-ram", "--swa-full"))
    assert lacking(with_field(name, value), build) == ()


def test_all_that_is_lacking_is_named() -> None:
    config = dataclasses.replace(BARE, parallel=1, cache_ram=8, swa_full=True)
    build = capabilities(without=("--cache-ram", "--swa-full"))
    assert lacking(config, build) == ("--cache-ram", "--swa-full")


def given(*words: str, **fields: object) -> tuple[str, ...]:
    """The contradictions between `fields`, all required, and the user's `words`."""
    config = dataclasses.replace(BARE, extra_args=words, **fields)  # type: ignore[arg-type]  # as above
    return contradictions(config, fields, BUILD)


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ((), {"parallel": 1}),
        (("--parallel", "1"), {"parallel": 1}),
        (("-np", "1"), {"parallel": 1}),
        (("-np", "4", "-np", "1"), {"parallel": 1}),  # as for the server, the last one counts
        (("-fa", "on"), {"parallel": 1}),
        (("-fa", "off"), {"flash_attn": "off"}),
        (("--cache-ram", "-1"), {"cache_ram": -1}),
        (("-cram", "0"), {"cache_ram": 0}),
        (("-sps", "0.5"), {"slot_prompt_similarity": 0.5}),
        (("-kvu",), {"kv_unified": True}),
        (("--kv-unified",), {"kv_unified": True}),
        (("-no-kvu",), {"kv_unified": False}),
        (("--no-kv-unified",), {"kv_unified": False}),
        (("--swa-full",), {"swa_full": True}),
        (("-c", "8192"), {"ctx_size": 8192}),
        (("-c", "32768"), {"ctx_size": 8192}),
        (("-c", "0"), {"ctx_size": 8192}),  # as much as the model has
        (("-cram", "256"), {"cache_ram": 256}),
        (("-cram", "8192"), {"cache_ram": 256}),
        (("--cache-ram", "-1"), {"cache_ram": 256}),  # no limit
        (("--cache-type-k", "f32"), {"cache_type_k": "f32"}),
    ],
)
def test_no_contradiction(words: tuple[str, ...], fields: dict[str, object]) -> None:
    assert given(*words, **fields) == ()


@pytest.mark.parametrize(
    ("words", "fields", "text"),
    [
        (
            ("--parallel", "4"),
            {"parallel": 1},
            "needs --parallel 1, --llama-arg gives --parallel 4",
        ),
        (("-np", "4"), {"parallel": 1}, "needs --parallel 1, --llama-arg gives -np 4"),
        (("-cram", "0"), {"cache_ram": 256}, "needs --cache-ram 256, --llama-arg gives -cram 0"),
        (
            ("-cram", "255"),
            {"cache_ram": 256},
            "needs --cache-ram 256, --llama-arg gives -cram 255",
        ),
        (("-cram", "256"), {"cache_ram": 0}, "needs --cache-ram 0, --llama-arg gives -cram 256"),
        (("-cram", "-1"), {"cache_ram": 0}, "needs --cache-ram 0, --llama-arg gives -cram -1"),
        (("-cram", "256"), {"cache_ram": -1}, "needs --cache-ram -1, --llama-arg gives -cram 256"),
        (("-fa", "on"), {"flash_attn": "off"}, "needs --flash-attn off, --llama-arg gives -fa on"),
        (("-kvu",), {"kv_unified": False}, "needs --no-kv-unified, --llama-arg gives -kvu"),
        (("-no-kvu",), {"kv_unified": True}, "needs --kv-unified, --llama-arg gives -no-kvu"),
        (("--swa-full",), {"swa_full": False}, "needs no --swa-full, --llama-arg gives --swa-full"),
        (("-cram", "0"), {"cache_ram": None}, "needs no --cache-ram, --llama-arg gives -cram 0"),
        (("-c", "4096"), {"ctx_size": 8192}, "needs --ctx-size 8192, --llama-arg gives -c 4096"),
        (("-c", "many"), {"ctx_size": 8192}, "needs --ctx-size 8192, --llama-arg gives -c many"),
        (("-np", "1", "-np", "4"), {"parallel": 1}, "needs --parallel 1, --llama-arg gives -np 4"),
        (
            ("--cache-type-k", "other type"),
            {"cache_type_k": "f16"},
            "needs --cache-type-k f16, --llama-arg gives --cache-type-k 'other type'",
        ),
    ],
)
def test_a_contradiction_names_both(
    words: tuple[str, ...], fields: dict[str, object], text: str
) -> None:
    assert given(*words, **fields) == (text,)


def test_only_what_is_required_contradicts() -> None:
    config = dataclasses.replace(BARE, parallel=1, cache_ram=8, extra_args=("-np", "4"))
    assert contradictions(config, ["cache_ram"], BUILD) == ()
    assert len(contradictions(config, ["cache_ram", "parallel"], BUILD)) == 1


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        ((), {}),
        (("-fa", "on"), {"-fa": ("-fa", "on")}),
        (("--flash-attn", "on"), {"-fa": ("--flash-attn", "on")}),
        (("--cache-ram", "-1"), {"-cram": ("--cache-ram", "-1")}),
        (("-sps", "-0.5"), {"-sps": ("-sps", "-0.5")}),
        (("-np", "2", "-np", "4"), {"-np": ("-np", "4")}),
        (("--no-kv-unified",), {"-kvu": ("--no-kv-unified",)}),
        (("--metrics", "-np", "2"), {"--metrics": ("--metrics",), "-np": ("-np", "2")}),
        (
            ("--chat-template-kwargs", '{"thinking": false}'),
            {"--chat-template-kwargs": ("--chat-template-kwargs", '{"thinking": false}')},
        ),
    ],
)
def test_the_users_flags(words: tuple[str, ...], flags: dict[str, tuple[str, ...]]) -> None:
    assert user_flags(words, BUILD) == flags


@pytest.mark.parametrize(
    ("words", "unknown"),
    [
        (("--no-such-flag",), "--no-such-flag"),
        (("--no-such-flag", "1"), "--no-such-flag"),
        (("-np", "4", "--no-such-flag"), "--no-such-flag"),
        (("-np", "4", "-nosuch", "1"), "-nosuch"),
        (("--cache-ram=4",), "--cache-ram=4"),  # llama-server does not read it either
        (("stray",), "stray"),
        (("-1",), "-1"),
    ],
)
def test_an_unknown_flag(words: tuple[str, ...], unknown: str) -> None:
    """It would end the server, which would look like a crash of the build."""
    with pytest.raises(UsageProblem, match="has no flag") as caught:
        user_flags(words, BUILD)
    assert caught.value.message.endswith(unknown)
    assert "7e4c0a9" in caught.value.hint


TOLD = dataclasses.replace(
    BUILD,
    values=(
        FlagValues(flag="-np", count=1, number=True),
        FlagValues(flag="-c", count=1, number=True),
        FlagValues(flag="-fa", count=1, words=("on", "off", "auto")),
        FlagValues(flag="-kvu", count=0),
    ),
)
"""A build whose help says what some flags take."""


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("-np", "4", "--flash-attn", "on", "-no-kvu", "-c", "8192"),
        ("-c", "0"),
        ("-c", "-1"),
        ("-c", "4096", "--ctx-size", "8192"),  # the last one counts
        ("-ctk", "q9"),  # nothing is known of it
        ("-cram",),
    ],
)
def test_values_that_may_be_right(words: tuple[str, ...]) -> None:
    check_values(words, TOLD)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-np", "four"), "-np four is not a number"),
        (("--no-kv-unified", "1"), "--no-kv-unified takes no value, got 1"),
        (
            ("-np", "-fa", "of", "-np", "4"),
            "-np needs a value; -fa of is not one of on, off, auto",
        ),
        (("-c", "4096"), "-c 4096 is too small: scenarios need 8192 tokens of context"),
        (("--ctx-size", "8191"), "--ctx-size 8191 is too small: scenarios need 8192 tokens of "),
        (
            ("-c", "512", "-np", "x"),
            "-np x is not a number; -c 512 is too small: scenarios need 8192 tokens of context",
        ),
    ],
)
def test_values_that_are_wrong(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        check_values(words, TOLD)
    assert caught.value.message.startswith(f"--llama-arg: {said}")
    assert "\n" not in str(caught.value)


def test_what_to_do_about_a_wrong_value() -> None:
    with pytest.raises(UsageProblem) as caught:
        check_values(("-c", "4096"), TOLD)
    assert caught.value.hint == "leave it out, or give at least 8192"
    with pytest.raises(UsageProblem) as caught:
        check_values(("-c", "4096", "-fa", "x"), TOLD)
    assert caught.value.hint.endswith("see its --help; leave -c 4096 out, or give at least 8192")


def test_values_are_looked_at_once() -> None:
    """A server that a person has started has said itself that they are right."""
    assert user_flags(("-np", "four", "-c", "4096"), TOLD)
    assert argv(dataclasses.replace(BARE, extra_args=("-np", "four")), TOLD)[-1] == "four"


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("-m", "--llama-model"),
        ("--model", "--llama-model"),
        ("--lora", "--llama-lora"),
        ("--lora-scaled", "--llama-lora"),
        ("-a", "knows its server"),
        ("--host", "loopback"),
        ("--port", "by the system"),
        ("-v", "prompts"),
        ("--log-verbose", "prompts"),
        ("-lv", "no prompt text"),
        ("--log-verbosity", "no prompt text"),
        ("--log-file", "--llama-keep"),
        ("--log-disable", "explains"),
        ("--api-key", "loopback"),
        ("--api-key-file", "loopback"),
        ("--api-prefix", "root"),
        ("-h", "yourself"),
        ("--usage", "yourself"),
        ("--version", "yourself"),
    ],
)
def test_a_flag_that_is_the_harness_own(word: str, hint: str) -> None:
    with pytest.raises(UsageProblem, match="may not give") as caught:
        user_flags(("-np", "4", word, "x"), BUILD)
    assert caught.value.message.endswith(word)
    assert hint in caught.value.hint


def test_all_flags_that_are_the_harness_own_are_named_at_once() -> None:
    """As in a command line that was pasted."""
    words = ("-m", "x.gguf", "--no-such", "--host", "0.0.0.0", "--port", "80", "--api-key", "x")
    with pytest.raises(UsageProblem) as caught:
        user_flags(words, BUILD)
    assert caught.value.message == "--llama-arg may not give -m, --host, --port, --api-key"
    assert caught.value.hint.startswith("leave them out: use --llama-model; servers listen on")


def test_a_users_word_replaces_a_default() -> None:
    config = dataclasses.replace(BARE, flash_attn="off", extra_args=("-fa", "on"))
    words = argv(config, BUILD)
    assert "--flash-attn" not in words
    assert words[-2:] == ("-fa", "on")
    assert words.count("off") == FIXED.count("off")


def test_a_users_negation_replaces_a_default() -> None:
    config = dataclasses.replace(BARE, slots=True, extra_args=("--no-slots",))
    words = argv(config, BUILD)
    assert "--slots" not in words
    assert words[-1] == "--no-slots"


def test_a_users_words_come_last_and_as_given() -> None:
    words = ("-ctxcp", "0", "--chat-template-kwargs", '{"a": 1}')
    assert argv(dataclasses.replace(BARE, extra_args=words), BUILD)[-4:] == words


def test_a_users_words_are_checked_whenever_a_command_is_made() -> None:
    with pytest.raises(UsageProblem):
        argv(dataclasses.replace(BARE, extra_args=("--port", "80")), BUILD)


@pytest.mark.parametrize(
    ("words", "fields", "texts"),
    [
        (("-np", "1", "-kvu"), {"parallel": 1, "kv_unified": True}, []),
        (("-np", "1"), {"embeddings": False}, []),
        (("-c", "16384"), {"ctx_size": 8192}, []),
        ((), {"parallel": 1}, ["needs --parallel 1, the server was started without"]),
        (
            (),
            {"parallel": 1, "kv_unified": False},
            ["needs --parallel 1 --no-kv-unified, the server was started without"],
        ),
        (
            ("-np", "4"),
            {"parallel": 1, "cache_ram": 8},
            [
                "needs --parallel 1, the server was started with -np 4",
                "needs --cache-ram 8, the server was started without",
            ],
        ),
    ],
)
def test_what_a_server_was_started_with(
    words: tuple[str, ...], fields: dict[str, object], texts: list[str]
) -> None:
    config = dataclasses.replace(BARE, extra_args=words, **fields)  # type: ignore[arg-type]  # as above
    assert list(contradictions(config, fields, BUILD, started=True)) == texts


def test_a_users_words_without_those_of_some_fields() -> None:
    words = ("-np", "4", "-fa", "on", "--parallel", "1", "-no-kvu")
    assert without(words, ["parallel", "kv_unified"], BUILD) == ("-fa", "on")
    assert without(words, [], BUILD) == words


def test_flags_without_what_is_the_harnesss_own() -> None:
    config = with_field("parallel", 1)
    whole = argv(config, BUILD)
    assert whole[-len(flags_of(config, BUILD)) :] == flags_of(config, BUILD)
    assert not {"--host", "--port", "-lv", "--log-colors"} & set(flags_of(config, BUILD))
