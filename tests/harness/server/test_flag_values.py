"""Values of flags: what `--help` says of them, and what is said of those that are none."""

from __future__ import annotations

import subprocess

import pytest

from harness.builds.build import Build
from harness.server.flag_values import FlagValues

TYPES = """\
 TYPE              KV cache data type for K
                                        allowed values: f32, f16, bf16, q8_0,
                                        iq4_nl, q5_1
                                        (default: f16)
"""
LAYERS = """\
 N   max. number of layers to store in VRAM, either an exact number,
                                        'auto', or 'all' (default: auto)
"""


@pytest.mark.parametrize(
    ("entry", "values"),
    [
        ("                    use full-size SWA cache", FlagValues(flag="-x", count=0)),
        ("\n                    whether to repack", FlagValues(flag="-x", count=0)),
        ("", FlagValues(flag="-x", count=0)),
        (" N                  the number", FlagValues(flag="-x", count=1, number=True)),
        (" N\n                 the number", FlagValues(flag="-x", count=1, number=True)),
        (" SIMILARITY\n   how much", FlagValues(flag="-x", count=1, number=True)),
        (" <0...100>         level", FlagValues(flag="-x", count=1, number=True)),
        (" <0|1>             level", FlagValues(flag="-x", count=1, number=True)),
        (LAYERS, FlagValues(flag="-x", count=1, number=True, words=("auto", "all"))),
        (
            " [on|off|auto]       set Flash Attention use ('on', 'off', or 'auto')",
            FlagValues(flag="-x", count=1, words=("on", "off", "auto")),
        ),
        (
            " {none,layer,row,tensor}\n       how to split",
            FlagValues(flag="-x", count=1, words=("none", "layer", "row", "tensor")),
        ),
        (
            TYPES,
            FlagValues(flag="-x", count=1, words=("f32", "f16", "bf16", "q8_0", "iq4_nl", "q5_1")),
        ),
        (" START END\n         layer range", FlagValues(flag="-x", count=2)),
        # A description, or words that are there for something else.
        (" <dev1,dev2,..>          devices", FlagValues(flag="-x", count=1)),
        (" [<repo>/]<model>[:quant]\n   a repository", FlagValues(flag="-x", count=1)),
        (" <tensor name pattern>=<buffer type>,...\n   a", FlagValues(flag="-x", count=1)),
        (" lo-hi                  range", FlagValues(flag="-x", count=1)),
        (" none,draft-simple,ngram\n      types", FlagValues(flag="-x", count=1)),
        (" LEVEL         'default', or such as 'low'", FlagValues(flag="-x", count=1)),
    ],
)
def test_what_help_says(entry: str, values: FlagValues) -> None:
    assert FlagValues.described("-x", entry) == values


NUMBER = FlagValues(flag="-np", count=1, number=True)
WORDS = FlagValues(flag="-fa", count=1, words=("on", "off", "auto"))
EITHER = FlagValues(flag="-ngl", count=1, number=True, words=("auto", "all"))
ANY = FlagValues(flag="-ot", count=1)
SWITCH = FlagValues(flag="-kvu", count=0)
TWO = FlagValues(flag="--range", count=2)


@pytest.mark.parametrize(
    ("values", "given"),
    [
        *((NUMBER, ("-np", value)) for value in ("4", "-1", "+4", " 4", "0.5", ".5", "1e-3", "2.")),
        (NUMBER, ("-sps", "inf")),
        *((WORDS, ("-fa", value)) for value in ("on", "off", "auto", "-1", "1", "0")),
        *((WORDS, ("-fa", value)) for value in ("true", "false", "enabled", "disabled")),
        (EITHER, ("-ngl", "99")),
        (EITHER, ("--gpu-layers", "all")),
        (ANY, ("-ot", "")),
        (ANY, ("-ot", "blk.*=CPU")),
        (SWITCH, ("-no-kvu",)),
        (TWO, ("--range", "1", "2")),
    ],
)
def test_what_is_right(values: FlagValues, given: tuple[str, ...]) -> None:
    assert values.problem(given) == ""


@pytest.mark.parametrize(
    ("values", "given", "said"),
    [
        (NUMBER, ("-np", "four"), "-np four is not a number"),
        # The server would read 32, and say nothing.
        (NUMBER, ("-c", "32k"), "-c 32k is not a number"),
        (NUMBER, ("-np", ""), "-np '' is not a number"),
        (NUMBER, ("-np", "0x10"), "-np 0x10 is not a number"),
        (NUMBER, ("-np", "."), "-np . is not a number"),
        (NUMBER, ("-np", "\u0664"), "-np '\u0664' is not a number"),  # four, in Arabic
        (WORDS, ("-fa", "onn"), "-fa onn is not one of on, off, auto"),
        (WORDS, ("--flash-attn", "ON"), "--flash-attn ON is not one of on, off, auto"),
        (EITHER, ("-ngl", "al"), "-ngl al is neither a number nor one of auto, all"),
        (NUMBER, ("-np",), "-np needs a value"),
        (ANY, ("-ot",), "-ot needs a value"),
        (TWO, ("--range", "1"), "--range needs 2 values"),
        (SWITCH, ("-kvu", "1"), "-kvu takes no value, got 1"),
        (NUMBER, ("-np", "4", "a b"), "-np takes one value, got 4 'a b'"),
        (TWO, ("--range", "1", "2", "3"), "--range takes 2 values, got 1 2 3"),
    ],
)
def test_what_is_wrong(values: FlagValues, given: tuple[str, ...], said: str) -> None:
    assert values.problem(given) == said


def test_a_switch_of_two_positions_has_no_third() -> None:
    fit = FlagValues(flag="-fit", count=1, words=("on", "off"))
    assert fit.problem(("-fit", "true")) == ""
    assert fit.problem(("-fit", "auto")) == "-fit auto is not one of on, off"
    assert fit.problem(("-fit", "-1")) == "-fit -1 is not one of on, off"


TRIED = """
-fa: on off auto true false enabled disabled 1 0 -1 ON x
-fit: on off true false enabled disabled 1 0 auto -1
-ctk: f32 f16 bf16 q8_0 q4_0 q4_1 iq4_nl q5_0 q5_1 q9
-ngl: auto all 99 x
-np: 4 +4 -1 four
-sm: none layer row x
-sps: .5 1e-1 x
--temp: inf x
--poll: 50 x
--poll-batch: 50
-kvu: 1
"""


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        (flag, value)
        for flag, _, values in (line.partition(": ") for line in TRIED.split("\n")[1:-1])
        for value in values.split()
    ],
)
def test_a_server_takes_the_same(flag: str, value: str, llama_build: Build) -> None:
    """Its own parser is what counts."""
    if not llama_build.origin.provided:
        pytest.skip("another build may take others")
    values = llama_build.capabilities.takes(flag)
    assert values is not None
    command = [str(llama_build.origin.path), flag, value, "--version"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert (values.problem((flag, value)) == "") is (done.returncode == 0)
