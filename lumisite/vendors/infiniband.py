"""InfiniBand and RoCE, of whatever maker, and what else Linux has in the class of InfiniBand.

Sources: Linux' Documentation/ABI/stable/sysfs-class-infiniband; rdma-core (libibverbs.so.1, libefa.so.1,
/dev/infiniband); `prov/efa/configure.m4` of libfabric, whose provider for EFA is not built without libefa.
"""

from lumisite.vendors.model import Fabric, LogWords, Vendor

_CLASS = "/sys/class/infiniband"
_DEVICES = ("/dev/infiniband/uverbs*",)
_LIBRARIES = ("libibverbs.so.1",)

VENDOR = Vendor(
    title="InfiniBand and RoCE",
    fabrics=(
        Fabric(
            title="EFA",
            carriers=("EFA", "efa"),
            folder=_CLASS,
            driver="efa",
            devices=_DEVICES,
            libraries=("libefa.so.1",),
        ),
        Fabric(
            title="InfiniBand",
            carriers=("IB", "verbs"),
            folder=_CLASS,
            link="InfiniBand",
            devices=_DEVICES,
            libraries=_LIBRARIES,
            interface="ib",
            own=("IB",),
        ),
        Fabric(
            title="RoCE",
            carriers=("RoCE", "verbs"),
            folder=_CLASS,
            link="Ethernet",
            devices=_DEVICES,
            libraries=_LIBRARIES,
            own=("RoCE",),
        ),
    ),
    kernel_modules=r"mlx[45]_\w+|hfi1|irdma|efa|bnxt_re",
    # aws-ofi-nccl was called by its maker before 1.13.
    log=LogWords(providers=("verbs", "efa"), networks=("AWS Libfabric",), failed=("Only EFA provider is",)),
)
