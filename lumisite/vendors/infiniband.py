"""InfiniBand and RoCE, of whatever maker, and what else Linux has in the class of InfiniBand.

Sources: Linux' Documentation/ABI/stable/sysfs-class-infiniband; rdma-core (libibverbs.so.1, /dev/infiniband).
"""

from lumisite.vendors.model import Fabric, Vendor

VENDOR = Vendor(
    title="InfiniBand and RoCE",
    fabrics=(
        Fabric(
            title="InfiniBand",
            carriers=("IB", "RoCE", "EFA", "verbs", "efa"),
            folder="/sys/class/infiniband",
            devices=("/dev/infiniband/uverbs*",),
            libraries=("libibverbs.so.1",),
            interface="ib",
        ),
    ),
    kernel_modules=r"mlx[45]_\w+|hfi1|irdma|efa|bnxt_re",
)
