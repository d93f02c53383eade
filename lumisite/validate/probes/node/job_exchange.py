"""Exchange bytes with other nodes by TCP, over each interface, and record what fails and what was sent again.

`node_exchange.py OUTDIR INTERFACE...`, one task on each node. Each node listens on every interface, leaves its
addresses in OUTDIR/RANK.address, and sends to its next nodes on both sides (of up to 2 * NEXT + 1 nodes that is each to
each): many small messages one by one, then a large one whose packets are full. It needs no PyTorch and no GPU: what
keeps ranks waiting for minutes later is seen here in seconds.
"""

# mypy: disable-error-code="import-not-found"
# lumisite_record stands beside this file in the job.

import fcntl
import json
import os
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import lumisite_record as record

#: Nodes on each side that a node sends to.
NEXT = 4
#: Small messages, bytes of one, and of the large one: many packets of any MTU.
SMALL, SMALL_BYTES, LARGE_BYTES = 200, 512, 1 << 17
#: How long others may take to start, a connection to come up, and the messages of each kind to arrive, in seconds.
WAIT_S, CONNECT_S, SEND_S = 10, 3, 5
#: Nobody waits for others any longer than this.
ALL_S = 25
#: ioctl(2) for the IPv4 address of an interface, and where it is in the answer (netdevice(7)).
SIOCGIFADDR, ADDRESS = 0x8915, slice(20, 24)
#: Places of counters in struct tcp_info of linux/tcp.h: segments with data that were sent (Linux 4.6), and sent again.
DATA_SEGMENTS, SENT_AGAIN = 156, 100


def main() -> None:
    """Listen, send, record, and stay until the others are done with this node."""
    began = time.monotonic()
    facts = record.identity()
    out, rank = Path(sys.argv[1]), record.number("SLURM_PROCID")
    nodes = record.number("SLURM_NTASKS", 1)
    partners = sorted({(rank + step) % nodes for step in range(-NEXT, NEXT + 1)} - {rank})
    listeners = {}
    for name in sys.argv[2:]:
        address = address_of(name)
        if address:
            listeners[name] = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listeners[name].bind((address, 0))
            listeners[name].listen(64)
    for listener in listeners.values():
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
    addresses = {name: listener.getsockname() for name, listener in listeners.items()}
    out.mkdir(parents=True, exist_ok=True)
    leave(out / f"{rank}.address", dict(facts, addresses=addresses))
    sent = []  # type: list[dict[str, object]]
    threads = [
        threading.Thread(target=send_to, args=(out, partner, name, addresses[name][0], sent, began), daemon=True)
        for partner in partners
        for name in addresses
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, began + ALL_S - time.monotonic()))
    facts.update(part="exchange", sent=list(sent), counters={name: counters(name) for name in sys.argv[2:]})
    leave(out / f"{rank}.json", facts)
    there = [partner for partner in partners if (out / f"{partner}.address").exists()]
    while time.monotonic() < began + ALL_S and not all((out / f"{partner}.json").exists() for partner in there):
        time.sleep(0.1)
    (out / f"{rank}.address").unlink()


def address_of(interface: str) -> str:
    """Return the IPv4 address of an interface, empty where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            answer = fcntl.ioctl(any_socket, SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return ""
    return socket.inet_ntoa(answer[ADDRESS])


def counters(interface: str) -> "dict[str, int]":
    """Return the counters of an interface that count errors, as node.sh does before."""
    names = ("statistics/rx_errors", "statistics/tx_errors", "carrier_changes")
    found = {name: record.text_of(f"/sys/class/net/{interface}/{name}").strip() for name in names}
    return {name.rpartition("/")[2]: int(text) for name, text in found.items() if text.isdigit()}


def leave(path: Path, content: "dict[str, object]") -> None:
    """Write a file whole, or not at all."""
    partial = path.with_suffix(path.suffix + ".partial")
    partial.write_text(json.dumps(content) + "\n", encoding="utf-8")
    partial.rename(path)


# ---- the two ends


def serve(listener: socket.socket) -> None:
    """Answer each connection in a thread of its own."""
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer_all, args=(connection,), daemon=True).start()


def answer_all(connection: socket.socket) -> None:
    """Answer each message, which begins with its length, with one byte."""
    try:
        connection.settimeout(ALL_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            (length,) = struct.unpack("!I", receive(connection, 4))
            receive(connection, length)
            connection.sendall(b"x")
    except OSError:
        connection.close()


def receive(connection: socket.socket, length: int) -> bytes:
    """Return so many bytes; raises `OSError` where the other end goes away."""
    data = bytearray()
    while len(data) < length:
        part = connection.recv(min(1 << 16, length - len(data)))
        if not part:
            raise ConnectionError("closed by the other node")
        data += part
    return bytes(data)


def send_to(
    out: Path, partner: int, interface: str, source: str, sent: "list[dict[str, object]]", began: float
) -> None:
    """Send all messages to one node over one interface, and append what came of it."""
    address = out / f"{partner}.address"
    while not address.exists() and time.monotonic() < began + WAIT_S:
        time.sleep(0.1)
    other = json.loads(record.text_of(str(address)) or "{}")
    target = other.get("addresses", {}).get(interface)
    if not target:
        return
    found = {"to": other.get("host"), "interface": interface, "at": "connect", "error": ""}
    # It is appended first: what never comes back from a call is recorded too, by where it is.
    sent.append(found)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        try:
            send_all(connection, interface, source, tuple(target), found)
        except OSError as error:
            found["error"] = error.strerror or str(error)
        with suppress(OSError, struct.error):
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            again, segments = (struct.unpack_from("I", info, place)[0] for place in (SENT_AGAIN, DATA_SEGMENTS))
            found.update(again=again, segments=segments)


def send_all(
    connection: socket.socket, interface: str, source: str, target: "tuple[str, int]", found: "dict[str, object]"
) -> None:
    """Send small messages, then the large one; `at` says which of them is under way, and is empty at the end."""
    with suppress(OSError):  # older kernels leave this to root
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
    connection.bind((source, 0))
    connection.settimeout(CONNECT_S)
    connection.connect(target)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, count, length in (("small", SMALL, SMALL_BYTES), ("large", 1, LARGE_BYTES)):
        found["at"] = name
        end = time.monotonic() + SEND_S
        for _ in range(count):
            connection.settimeout(max(0.001, end - time.monotonic()))
            connection.sendall(struct.pack("!I", length) + bytes(length))
            receive(connection, 1)
    found["at"] = ""


if __name__ == "__main__":
    main()
    # Threads of connections that hang end with the process.
    os._exit(0)
