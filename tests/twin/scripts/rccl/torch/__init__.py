"""Stands for a PyTorch with GPUs and RCCL: as much of it as the probes `transport` and `communicators` ask for.

Sums are right whatever they are: test_faults_of_a_run.py is about the log, test_communicators.py about what hangs.
"""

from typing import Any

__version__ = "0"


class device:  # noqa: N801 (PyTorch's own name)
    """One GPU."""

    type = "cuda"

    def __init__(self, name: str, index: int = 0) -> None:
        self.index = index


class Tensor:
    """Numbers that are only counted."""

    def __init__(self, count: int) -> None:
        self.count = count

    def numel(self) -> int:
        return self.count

    def __ne__(self, other: object) -> Any:
        return self

    def sum(self) -> int:
        return 0


def full(shape: "tuple[int, ...]", value: float, device: Any = None) -> Tensor:
    return Tensor(shape[0])


def zeros(count: int, device: Any = None) -> Tensor:
    return Tensor(count)


ones = zeros


class cuda:  # noqa: N801 (PyTorch's own name)
    """A node with one GPU for each rank."""

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def set_device(device: Any) -> None:
        pass

    @staticmethod
    def synchronize(device: Any) -> None:
        pass
