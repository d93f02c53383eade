"""Values that were measured to do harm, until the settings ledger holds them.

REPLACE: this table is what `_harmful` in `find` gives. When ledger entries carry evidence, build the same values there
from the entries that are harmful, and delete this module.
"""

from __future__ import annotations

from dataclasses import replace

from lumisite.site.versions import parse_version_range
from lumisite.validate.lint.machine import Harmful

_STUDY = "aniskhan25/lumi-ai-assistant-demo repro/rccl_{}_gfx90a/FINDINGS.md"

_GDR_LEVEL = Harmful(
    name="NCCL_NET_GDR_LEVEL",
    value="PHB",
    nodes="several",
    rocm=parse_version_range(">=6.2"),
    families=None,
    reason="from ROCm 6.2 on RCCL does this by itself where it helps, and ROCm 7.0 images hang in the first collective "
    "across nodes (2 nodes: 3 of 3 runs, 8 nodes: 64 of 64 ranks)",
    right="unset NCCL_NET_GDR_LEVEL",
    source=f"{_STUDY.format('startup')}; lumi-ai-factory/laifs-container-recipes issues 28 and 30; "
    "Lumi-supercomputer/LUMI-AI-Guide pull request 97; Lumi-supercomputer/LUMI-EasyBuild-containers PyTorch-2.7.1",
    applies_to_unknown_image=True,
)
_LL128 = Harmful(
    name="NCCL_PROTO",
    value="LL128*",
    nodes=None,
    rocm=None,
    families=None,
    reason="bf16 all-reduce fails with LL128",
    right="unset NCCL_PROTO",
    source=_STUDY.format("tuning"),
    applies_to_unknown_image=True,
)

UNTIL_THE_LEDGER_TELLS = (
    *(replace(_GDR_LEVEL, value=value) for value in ("PHB", "SYS", "[345]")),
    # A list that begins with ^ says what is not used.
    *(replace(_LL128, value=value) for value in ("LL128*", "[!^]*[,:]LL128*")),
    Harmful(
        name="FI_MR_CACHE_MONITOR",
        value="kdreg2",
        nodes=None,
        rocm=parse_version_range(">=7.0,<7.1"),
        families=None,
        reason="the libfabric in images of ROCm 7.0 has no kdreg2 and takes another monitor without a word",
        right="export FI_MR_CACHE_MONITOR=userfaultfd",
        source=_STUDY.format("startup"),
        applies_to_unknown_image=False,
    ),
    Harmful(
        name="NCCL_MIN_NCHANNELS",
        value="?*",
        nodes=None,
        rocm=None,
        families=None,
        reason="it gains in a microbenchmark, but vLLM with pipeline parallelism answered 0 of 120 requests",
        right="unset NCCL_MIN_NCHANNELS",
        source=_STUDY.format("tuning"),
        applies_to_unknown_image=True,
    ),
)
