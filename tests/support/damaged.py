"""Files with damage of any kind."""

from __future__ import annotations

import random


def mutated(content: bytes, choose: random.Random) -> bytes:
    """Damage a file: bytes changed, a number made absurd, a part cut out or the end cut off."""
    damaged = bytearray(content)
    for _ in range(choose.randrange(1, 5)):
        place = choose.randrange(len(damaged) or 1)
        match choose.randrange(4):
            case 0:
                damaged[place : place + 1] = choose.randbytes(1)
            case 1:
                damaged[place : place + 8] = choose.choice([b"\xff" * 8, bytes(8), b"\x7f" + b"\xff" * 7])
            case 2:
                del damaged[place : place + choose.randrange(1, 64)]
            case _:
                del damaged[place:]
    return bytes(damaged)
