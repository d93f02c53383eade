"""HPE Cray: its programming environment, and Slingshot's Cassini adapters.

Sources: HPE's guides for CPE (trees below /opt/cray/pe) and for Slingshot's host software; libfabric's page fi_cxi(7).
"""

from lumisite.vendors.model import Fabric, LogWords, Software, Vendor

VENDOR = Vendor(
    title="HPE Cray",
    software=(
        Software(
            name="cpe",
            title="CPE",
            words="Cray programming environment",
            folders=("/opt/cray/pe/cpe/",),
            defaults=("/opt/cray/pe/cpe/default",),
            follows="/opt/cray/",
        ),
    ),
    fabrics=(
        Fabric(
            title="Slingshot",
            carriers=("cxi",),
            folder="/sys/class/cxi",
            devices=("/dev/cxi[0-9]*",),
            libraries=("libcxi.so.1",),
        ),
    ),
    products=("/opt/cray", "/opt/cray/pe"),
    linked=("/opt/cray/pe/lib64", "/opt/cray/pe/lib64/cce", "/opt/cray/lib64"),
    libraries=("/opt/cray/libfabric/*/lib64",),
    host_libraries=("/opt/cray/*/lib", "/opt/cray/*/*/lib"),
    module_folders=("/opt/cray/modulefiles", "/opt/cray/pe/modulefiles", "/opt/cray/pe/lmod/modulefiles"),
    kernel_modules=r"cxi_\w+|cassini\w*|kdreg\w*|kfi\w*",
    bound="/opt/cray",
    log=LogWords(providers=("cxi", "gni")),
)
