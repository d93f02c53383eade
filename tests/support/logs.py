"""Logs of NCCL and RCCL written in the form of their versions, as tests and benchmarks need them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """A run of `nodes` x `gpus` ranks. The defaults are a good one on LUMI: RCCL 2.18, aws-ofi-rccl 1.4, cxi."""

    nodes: int = 2
    gpus: int = 8
    network: str = "AWS Libfabric"
    plugin: tuple[str, ...] = ("NET/OFI Using aws-ofi-rccl 1.4.0",)
    provider: str = "NET/OFI Selected Provider is cxi (found 4 nics)"
    suffix: str = "/GDRDMA"
    channels: int = 4

    def rank_lines(self, rank: int) -> Iterator[str]:
        """The lines of one rank."""
        host, pid = f"nid{5000 + rank // self.gpus:06}", 7000 + rank
        head = f"{host}:{pid}:{pid + 90000} [{rank % self.gpus}] NCCL INFO "
        for text in self._texts(rank):
            yield head + text

    def _texts(self, rank: int) -> Iterator[str]:
        ranks = self.nodes * self.gpus
        about = f"rank {rank} nranks {ranks} cudaDev {rank % self.gpus} busId c1000 commId 0x7d5b"
        yield "Bootstrap : Using hsn0:10.253.1.7<0>"
        yield from self.plugin
        yield from [self.provider] if self.provider else []
        yield f"Using network {self.network}"
        yield f"ncclCommInitRank comm 0x55d0 {about} - Init START"
        yield "Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1"
        yield from self.channel_texts(rank)
        yield "Connected all rings comm 0x55d0 nRanks 16 busId c1000"
        yield "Connected all trees"
        yield f"ncclCommInitRank comm 0x55d0 {about} localSize 224 used 5292192 bytes - Init COMPLETE"

    def channel_texts(self, rank: int) -> Iterator[str]:
        """First and last GPU of a node speak to other nodes, the others to their neighbours."""
        ranks, place = self.nodes * self.gpus, rank % self.gpus
        for channel in range(self.channels):
            after, before = (rank + 1) % ranks, (rank - 1) % ranks
            via = f"NET/{self.network}/{channel % 4}{self.suffix} comm 0x55d0 nRanks 16"
            if place == 0:
                yield f"Channel {channel:02}/0 : {before}[de000] -> {rank}[c1000] [receive] via {via}"
            if place == self.gpus - 1:
                yield f"Channel {channel:02}/0 : {rank}[de000] -> {after}[c1000] [send] via {via}"
            else:
                yield f"Channel {channel:02}/0 : {rank}[c1000] -> {after}[c6000] via P2P/IPC comm 0x55d0 nRanks {ranks}"

    def lines(self) -> Iterator[str]:
        """The lines of all ranks, one from each rank by turns."""
        ranks = [list(self.rank_lines(rank)) for rank in range(self.nodes * self.gpus)]
        for at in range(max(map(len, ranks))):
            yield from (lines[at] for lines in ranks if at < len(lines))

    def text(self) -> bytes:
        """The whole log."""
        return ("\n".join(self.lines()) + "\n").encode()
