"""The environment a server is started in: nothing of the user's that could change its behaviour."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

SESSION_MARKER = "CACHE_HARNESS_SESSION"
"""Variable that marks every process of one harness session, so that strays can be found."""

# llama-server reads LLAMA_ARG_* for every flag, LLAMA_API_KEY, LLAMA_CACHE, GGML_* and HF_*; it
# must see exactly the flags a scenario states. What the loader and the GPU runtimes need
# (LD_LIBRARY_PATH, CUDA_*, VK_*, ROCR_*, ...) stays, with GGML_VK_VISIBLE_DEVICES, which is no
# more than that.
_HOSTILE = re.compile(
    r"(LLAMA_|GGML_(?!VK_VISIBLE_DEVICES$)|HF_|HUGGING_?FACE|MODEL_ENDPOINT$|NETRC$|CURL_HOME$)"
    r"|.*_PROXY$",
    re.IGNORECASE,
)

# A build with GPU backends looks for drivers whatever --device says, which takes longer than the
# rest of its start; a driver can be a whole compiler.
_NO_GPU = {
    "VK_DRIVER_FILES": os.devnull,
    "VK_ICD_FILENAMES": os.devnull,
    "CUDA_VISIBLE_DEVICES": "-1",
    "HIP_VISIBLE_DEVICES": "-1",
}


def hermetic_environment(
    environ: Mapping[str, str], session: str, *, gpu: bool = True
) -> dict[str, str]:
    """`environ` without what would decide for us, plus the marker of our `session`.

    Without `gpu` a server finds none.
    """
    kept = {name: value for name, value in environ.items() if not _HOSTILE.match(name)}
    # An abort with gdb installed attaches gdb and leaves the process "alive" for half a second.
    kept["GGML_NO_BACKTRACE"] = "1"
    kept[SESSION_MARKER] = session
    if not gpu:
        kept |= _NO_GPU
    return kept
