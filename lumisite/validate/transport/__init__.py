"""Logs of NCCL and RCCL: which network carried the traffic."""
