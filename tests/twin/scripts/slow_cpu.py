"""slow_cpu.py UID SHARE: let the processes of a user run for SHARE of the time only, until stdin closes.

They are stopped and continued 50 times a second, which needs no cgroup and slows them the same on a busy
machine.
"""

import os
import select
import signal
import sys
from pathlib import Path

PERIOD_S = 0.02


def pids_of(uid: int) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and folder.stat().st_uid == uid:
                found.append(int(folder.name))
        except FileNotFoundError:
            continue
    return found


def send(pids: list[int], sent: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, sent)
        except ProcessLookupError:
            continue


def wait(seconds: float) -> bool:
    """Wait; say whether stdin has closed meanwhile."""
    return bool(select.select([sys.stdin], [], [], seconds)[0])


def main() -> None:
    uid, share = int(sys.argv[1]), float(sys.argv[2])
    # It must be on time also when the machine is busy, or what it brakes runs meanwhile.
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    print("slow", flush=True)
    ended = False
    while not ended:
        stopped = pids_of(uid)
        send(stopped, signal.SIGSTOP)
        ended = wait(PERIOD_S * (1 - share))
        send(stopped, signal.SIGCONT)
        ended = ended or wait(PERIOD_S * share)


if __name__ == "__main__":
    main()
