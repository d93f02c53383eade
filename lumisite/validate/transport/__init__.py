"""Logs of NCCL and its like: which network carried the traffic."""
