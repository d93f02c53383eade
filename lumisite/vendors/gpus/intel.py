"""Intel.

Sources: oneAPI installation guide for Linux (components by version below /opt/intel/oneapi, since 2024 also one unified
folder by version); oneCCL (libccl.so.1); Level Zero specification (ZE_AFFINITY_MASK);
PyTorch's documentation (torch.xpu; XCCL in torch.distributed); Intel's wheels on PyPI; Linux'
drivers i915 and xe. What else Intel has for a display (class 0300) is in processors.
"""

from lumisite.vendors.gpus import DRIVERS
from lumisite.vendors.model import Collectives, Gpu, LogWords, Sign, Software, Vendor

_ONEAPI = "/opt/intel/oneapi"
_RELEASE = r"(\d{4})\.(\d+)(?:\.(\d+))?"

VENDOR = Vendor(
    title="Intel",
    log=LogWords(providers=("psm", "psm2", "psm3", "opx")),
    gpu=Gpu(
        pci="8086",
        classes=frozenset({"0380"}),
        drivers=DRIVERS["intel"],
        control="/dev/dri",
        devices=("/dev/dri/render*",),
        visible=("ZE_AFFINITY_MASK",),
        tool="xpu-smi",
        torch="xpu",
        jax=("xpu", "sycl"),
        prefixes=("ZE_",),
        image_words=(r"(?<![a-z])xpu(?![a-z])",),
        collectives=Collectives(
            name="oneccl",
            title="oneCCL",
            library="libccl",
            prefix="CCL_",
            backend="xccl",
            images=(
                Sign(of="path", paths=f"{_ONEAPI}/ccl/[0-9]*", says=rf"/{_RELEASE}$"),
                Sign(of="packages", paths="oneccl-*.dist-info", says=rf"-{_RELEASE}"),
            ),
        ),
    ),
    software=(
        Software(
            name="oneapi",
            title="oneAPI",
            folders=(f"{_ONEAPI}/compiler/", f"{_ONEAPI}/"),
            defaults=(f"{_ONEAPI}/compiler/latest",),
            libraries=("lib",),
            images=(
                Sign(of="path", paths=f"{_ONEAPI}/compiler/[0-9]*", says=rf"/{_RELEASE}$"),
                Sign(of="path", paths=f"{_ONEAPI}/[0-9]*", says=rf"/{_RELEASE}$"),
                Sign(of="packages", paths="intel_sycl_rt-*.dist-info", says=rf"-{_RELEASE}"),
            ),
        ),
    ),
    image_libraries=(f"{_ONEAPI}/ccl/latest/lib",),
)
