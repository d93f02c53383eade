"""Logs of NCCL: which network carried the traffic."""
