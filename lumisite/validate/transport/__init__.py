<<<<<<< HEAD
"""Logs of NCCL: which network carried the traffic."""
=======
"""Logs of NCCL and its like: which network carried the traffic."""
>>>>>>> vendors1
