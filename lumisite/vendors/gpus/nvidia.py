"""NVIDIA.

Sources: CUDA installation guide for Linux (trees below /usr/local/cuda-VERSION, `version.json` since 11.1 and
`version.txt` before); "CUDA compatibility" (what a driver runs); README of the driver for Linux (/proc/driver/nvidia,
/dev/nvidiactl); `src/plugin/net.cc`, `src/init.cc` (VERSION_STRING) and the
makefiles of NCCL (libnccl.so.2.21.5); NVIDIA's wheels on PyPI.
"""

from lumisite.vendors.gpus import DRIVERS
from lumisite.vendors.model import Collectives, Gpu, LogWords, Sign, Software, Vendor

_RELEASE = r"(\d+)\.(\d+)(?:\.(\d+))?"
_RECORD = rf'\s*\{{[\s\S]*?"cuda"\s*:\s*\{{[^}}]*"version"\s*:\s*"{_RELEASE}'

VENDOR = Vendor(
    title="NVIDIA",
    log=LogWords(harmless=("CUDA library",)),
    gpu=Gpu(
        pci="10de",
        classes=frozenset({"0300", "0302"}),
        drivers=DRIVERS["nvidia"],
        stated={
            "nvidia": Sign(
                of="text",
                paths="/proc/driver/nvidia/version",
                says=r"NVRM version: NVIDIA UNIX [^\n]*?Kernel Module[^\n]*?\s(\d+(?:\.\d+)+)\s",
            )
        },
        control="/dev/nvidiactl",
        devices=("/dev/nvidia[0-9]*",),
        flag="nv",
        visible=("CUDA_VISIBLE_DEVICES",),
        tool="nvidia-smi",
        torch="cuda",
        jax=("cuda", "gpu"),
        bus_ids=("libcudart.so", "cudaGetDeviceCount", "cudaDeviceGetPCIBusId"),
        prefixes=("CUDA_",),
        image_words=(r"^nvcr\.io/", r"^nvidia/", r"(?<![a-z])cuda[-_]?\d", r"(?<![a-z0-9])cu1\d\d?(?![a-z0-9])"),
        collectives=Collectives(
            name="nccl",
            title="NCCL",
            library="libnccl",
            prefix="NCCL_",
            plugins=("libnccl-net.so", "libnccl-net-ofi.so"),
            packages=("torch/lib", "nvidia/nccl/lib", "nvidia/cu[0-9]*/lib"),
            copies=(
                Sign(of="library", says=r"/libnccl\.so\.(\d+)\.(\d+)\.(\d+)$"),
                Sign(of="banner", says=r"NCCL version (\d+)\.(\d+)\.(\d+)"),
                Sign(of="packages", paths="nvidia_nccl_cu*.dist-info", says=r"-(\d+)\.(\d+)\.(\d+)"),
            ),
            # The release of CUDA in NCCL's own banner is that of its build, which runs with any minor one.
            torch=Sign(of="text", says=r"\+cu(\d\d)(\d)\b|(?m:^cuda\b[^=\n]{0,40}=\s*['\"](\d+)\.(\d+))"),
            images=(
                Sign(of="libraries", paths="libnccl.so.2.*", says=r"\.so\.(\d+)\.(\d+)\.(\d+)$"),
                Sign(of="packages", paths="nvidia_nccl_cu*.dist-info", says=r"-(\d+)\.(\d+)\.(\d+)"),
            ),
        ),
    ),
    software=(
        Software(
            name="cuda",
            title="CUDA",
            folders=("/usr/local/cuda-",),
            defaults=("/usr/local/cuda",),
            libraries=("lib64",),
            drivers={13: 580, 12: 525, 11: 450},
            images=(
                Sign(of="text", paths="/usr/local/cuda/version.json", says=_RECORD),
                Sign(of="text", paths="/usr/local/cuda-*/version.json", says=_RECORD),
                Sign(of="text", paths="/usr/local/cuda/version.txt", says=rf"CUDA Version {_RELEASE}"),
                Sign(of="path", paths="/usr/local/cuda-*", says=rf"-{_RELEASE}$"),
                # The third number of the library is a build, none of the release.
                Sign(of="libraries", paths="libcudart.so.*", says=r"\.so\.(\d+)\.(\d+)\.\d+$"),
                Sign(of="packages", paths="nvidia_cuda_runtime*.dist-info", says=r"-(\d+)\.(\d+)\.\d+"),
            ),
        ),
    ),
    image_libraries=("/usr/local/cuda/lib64", "/usr/local/cuda/targets/*/lib"),
)
