"""Tell from a process's lines how far its communicators came."""

from __future__ import annotations

from lumisite.validate.transport.log import Process


def setup_of(process: Process) -> str:
    """Tell how far the communicators of a process came: complete, stuck, unfinished or unknown.

    NCCL before 2.22 and RCCL connect rings and trees before `Init COMPLETE`; later NCCL connects each at its first
    use, so that rings without trees are a fault only in a communicator that has not completed. Where nothing shows
    that one began, lines have been left out, and those of trees may be among them.
    """
    began = process.pending or (process.graph and not process.begun)
    if began and process.rings > process.trees and process.rings > process.completed:
        return "stuck"
    if process.pending:
        return "unfinished"
    if process.completed or process.trees:
        return "complete"
    return "unfinished" if process.begun or process.graph or process.rings else "unknown"


def warned(process: Process) -> str:
    """Give the first warning of a process whose communicators did not all come up; empty if there is none."""
    return "" if process.broken or process.failed or setup_of(process) == "complete" else process.warned
