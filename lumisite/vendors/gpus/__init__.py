"""Vendors of GPUs, by the word that `stacks.*.gpu` of a site has for them."""
