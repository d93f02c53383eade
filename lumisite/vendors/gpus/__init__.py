"""Vendors of GPUs, by the word that `stacks.*.gpu` of a site has for them."""

#: What of a vendor's keeps caches on disk, for people. It stands here since modules name it: to render loads no vendor.
CACHING = {"amd": "MIOpen"}
#: The kernel modules that drive a vendor's GPUs, here for the same reason.
DRIVERS = {"amd": ("amdgpu",), "intel": ("i915", "xe"), "nvidia": ("nvidia",)}
