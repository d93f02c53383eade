"""AMD.

Sources: ROCm installation guide for Linux (packages install to /opt/rocm-VERSION and write .info/version). Of the ROCm
Core SDK (7.14, 10.0): "Transition guide from legacy ROCm release stream" (rocm.docs.amd.com/en/docs-10.0.0/about) and
`build_tools/packaging` of ROCm/TheRock (89553ce): packages amdrocm-NAMEX.Y, all files in /opt/rocm/core-X.Y, links to
these by update-alternatives (/opt/rocm/core, core-X, lib and others) from amdrocm-core alone; wheels rocm-sdk-core.
`src/misc/rocmwrap.cc` (what it asks of the kernel before it uses DMA-BUF), `src/plugin/net.cc` and `CMakeLists.txt` of
RCCL, and `src/init.cc` there (VERSION_STRING: what `strings` shows, "+hip6.0" in older ones, "ROCm version" since);
`docs/packaging/python_packaging.md` of ROCm/TheRock (wheels of ROCm, and what `torch/_rocm_init.py` opens first);
MIOpen's pages on its databases and caches; the PCI ID repository. An MI250X is a "display controller", an
MI300 a "processing accelerator".
"""

from lumisite.vendors.gpus import DRIVERS
from lumisite.vendors.model import Cache, Collectives, Gpu, LogWords, Sign, Software, Vendor

_RELEASE = r"(\d+)\.(\d+)(?:\.(\d+))?"
_STATED = ".info/version"
#: Folders of a release, the default one first; `*` sorts as text, and what is stated decides.
_TOPS = ("/opt/rocm", "/opt/rocm/core", "/opt/rocm/core-*", "/opt/rocm-*")

VENDOR = Vendor(
    title="AMD",
    gpu=Gpu(
        pci="1002",
        classes=frozenset({"0300", "0302", "0380", "1200"}),
        drivers=DRIVERS["amd"],
        control="/dev/kfd",
        devices=("/dev/kfd*", "/dev/dri/render*"),
        flag="rocm",
        visible=("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
        tool="rocm-smi",
        torch="cuda",
        jax=("rocm", "gpu"),
        collectives=Collectives(
            name="rccl",
            title="RCCL",
            library="librccl",
            prefix="RCCL_",
            plugins=("librccl-net.so", "librccl-net-ofi.so"),
            images=tuple(
                Sign(
                    of="text",
                    paths=f"{top}/lib/cmake/rccl/rccl-config-version.cmake",
                    says=r'PACKAGE_VERSION "(\d+)\.(\d+)\.(\d+)',
                )
                for top in _TOPS
            ),
            tests=("/usr/libexec/rccl-tests", "/opt/rccltests"),
            packages=("torch/lib", "_rocm_sdk_libraries*/lib", "_rocm_sdk_core/lib"),
            preloads="torch/_rocm_init.py",
            copies=(Sign(of="banner", says=r"RCCL version(?: : | )(\d+)\.(\d+)\.(\d+)"),),
            releases=(
                # librccl.so.1.0.70002 is of 7.0.2.
                Sign(of="library", says=r"/librccl\.so\.1\.0\.(\d{1,2})(\d\d)(\d\d)$"),
                Sign(of="banner", says=rf"ROCm version : {_RELEASE}"),
                Sign(of="banner", says=r"RCCL version \d[\w.-]{0,40}\+hip(\d+)\.(\d+)"),
                Sign(of="beside", paths="../.info/version", says=_RELEASE),
                Sign(of="library", says=rf"^/opt/rocm(?:-|/core-){_RELEASE}/"),
                Sign(of="packages", paths="rocm_sdk_libraries*.dist-info", says=rf"-{_RELEASE}"),
            ),
            torch=Sign(of="text", says=rf"\+rocm{_RELEASE}|(?m:^hip\b[^=\n]{{0,40}}=\s*['\"](\d+)\.(\d+))"),
        ),
        bus_ids=("libamdhip64.so", "hipGetDeviceCount", "hipDeviceGetPCIBusId"),
        prefixes=("MIOPEN_", "HSA_"),
        image_words=(r"(?<![a-z])rocm",),
        caches=(
            Cache(
                variable="MIOPEN_USER_DB_PATH",
                directory="miopen/db",
                why="MIOpen's databases lock each other on a shared file system",
            ),
            Cache(
                variable="MIOPEN_CUSTOM_CACHE_DIR",
                directory="miopen/cache",
                why="MIOpen's kernels are compiled by many ranks at once",
            ),
        ),
        misspelt={"MIOPEN_USER_DB": "MIOPEN_USER_DB_PATH"},
    ),
    software=(
        Software(
            name="rocm",
            title="ROCm",
            folders=("/opt/rocm-",),
            series=("/opt/rocm/core-",),
            stated=Sign(of="text", paths=_STATED, says=_RELEASE),
            package="amdrocm-base",
            defaults=("/opt/rocm", "/opt/rocm/core"),
            libraries=("lib",),
            images=(
                *(Sign(of="text", paths=f"{top}/{_STATED}", says=_RELEASE) for top in _TOPS),
                Sign(of="path", paths="/opt/rocm/core-*", says=rf"/core-{_RELEASE}$"),
                Sign(of="path", paths="/opt/rocm-*", says=rf"-{_RELEASE}$"),
                Sign(of="path", paths="/var/lib/dpkg/info/amdrocm-*.list", says=r"/amdrocm-[a-z-]*(\d+)\.(\d+)[-.:]"),
                Sign(of="packages", paths="rocm_sdk_core-*.dist-info", says=rf"-{_RELEASE}"),
                # librccl.so.1.0.70002 is of 7.0.2; that of the Core SDK says nothing.
                Sign(of="libraries", paths="librccl.so.1.0.*", says=r"\.(\d{1,2})(\d\d)(\d\d)$"),
            ),
        ),
    ),
    image_libraries=tuple(f"{top}/lib" for top in _TOPS),
    log=LogWords(harmless=("rocprofiler",)),
    kernel_options={"CONFIG_DMABUF_MOVE_NOTIFY": "RCCL", "CONFIG_PCI_P2PDMA": "RCCL"},
)
