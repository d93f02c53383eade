"""What a node's links have counted: errors and drops of interfaces and adapters, and what TCP has sent again.

It is read before a step's ranks meet and after they have left, so that it takes no time of what is measured. Anything
may be missing; what cannot be read is left out.
"""

import array
import fcntl
import os
import re
import socket
import struct
from contextlib import suppress
from pathlib import Path

import lumisite_record as record

# mypy: disable-error-code="import-not-found"
# lumisite_record stands beside this file in the job.

#: Columns of /proc/net/dev after the name (proc(5)), by the names that /sys/class/net/*/statistics has for them.
COLUMNS = {
    1: "rx_packets", 2: "rx_errors", 3: "rx_dropped", 4: "rx_fifo_errors", 5: "rx_frame_errors",
    9: "tx_packets", 10: "tx_errors", 11: "tx_dropped", 12: "tx_fifo_errors", 14: "tx_carrier_errors",
}  # fmt: skip
#: What counters of adapters and drivers are called that count losses; flushed requests are how connections end.
LOSSES = re.compile(r"err|drop|discard|crc|retry|retrans|replay|timeout|link_down|uncorrect|out_of_seq", re.IGNORECASE)
NO_LOSS = re.compile(r"flush|xdp|timeout_val")
#: No more files or counters of one adapter are read.
MOST = 400
#: ioctl(2): the address of an interface (netdevice(7)), and what `ethtool -S` asks for (linux/ethtool.h).
SIOCGIFADDR, SIOCETHTOOL = 0x8915, 0x8946
ETHTOOL_GSTRINGS, ETHTOOL_GSTATS, ETHTOOL_GSSET_INFO = 0x1B, 0x1D, 0x37
NAME_BYTES = 32
#: Where struct tcp_info (linux/tcp.h) has the segments that were sent again, all that were sent, and those that the
#: peer says it has got twice (RFC 2883), so that nothing was lost; kernels before 4.20 do not have these.
COUNTED_AT = {"resent": 100, "sent": 136, "got_twice": 216}
INFO_BYTES = 140


def counters(patterns: "list[str]", root: str = "/") -> "dict[str, dict[str, int]]":
    """Return the counters of each interface and adapter by its name, and those of TCP as a whole under `tcp`.

    `patterns` find the files with the counters of adapters, below /sys/class/KIND/ADAPTER.
    """
    found: dict[str, dict[str, int]] = {}
    for line in record.text_of(f"{root}proc/net/dev").splitlines():
        name, colon, rest = line.partition(":")
        numbers = rest.split()
        if colon and name.strip() != "lo" and len(numbers) > max(COLUMNS):
            name = name.strip()
            found[name] = {counter: int(numbers[column]) for column, counter in COLUMNS.items()}
            found[name].update(numbers_of([Path(f"{root}sys/class/net/{name}/carrier_changes")]), **driver(name))
    for path in [path for pattern in patterns for path in sorted(Path(root).glob(pattern.lstrip("/")))]:
        _, _, _, adapter, *rest = path.relative_to(root).parts
        label = f"{adapter}/{rest[1]}" if rest[0] == "ports" else adapter
        if is_loss(path.name) and len(found.setdefault(label, {})) < MOST:
            found[label].update(numbers_of([path]))
    tables = [line.split() for line in record.text_of(f"{root}proc/net/snmp").splitlines() if line.startswith("Tcp:")]
    names, values = tables[:2] or ([], [])
    tcp = dict(zip(names[1:], values[1:]))  # noqa: B905 - as Python 3.6 has it
    found["tcp"] = {
        name: int(tcp[name]) for name in ("OutSegs", "RetransSegs", "InErrs", "InCsumErrors") if name in tcp
    }
    return found


def is_loss(name: str) -> bool:
    """Return whether a counter of that name counts what was lost or had to be done again."""
    return bool(LOSSES.search(name)) and not NO_LOSS.search(name)


def numbers_of(paths: "list[Path]") -> "dict[str, int]":
    """Return the number in each file, by the file's name; some have a time behind it."""
    found = {}
    for path in paths:
        number = record.text_of(str(path)).split("@")[0].strip()
        if number.isdigit():
            found[path.name] = int(number)
    return found


def driver(name: str) -> "dict[str, int]":
    """Return the counters of losses that an interface's driver has for `ethtool -S`."""
    with suppress(OSError, ValueError, struct.error), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        # The number of counters, their names, and their values; 1 is the set of strings of counters.
        count = struct.unpack_from("=I", ask(asking, name, struct.pack("=IIQI", ETHTOOL_GSSET_INFO, 0, 2, 0)), 16)[0]
        if not 0 < count <= 1 << 14:
            return {}
        texts = ask(asking, name, struct.pack("=III", ETHTOOL_GSTRINGS, 1, count) + bytes(count * NAME_BYTES))[12:]
        values = ask(asking, name, struct.pack("=II", ETHTOOL_GSTATS, count) + bytes(count * 8))[8:]
        names = [texts[at : at + NAME_BYTES].partition(b"\0")[0].decode("ascii", "replace") for at in
                 range(0, count * NAME_BYTES, NAME_BYTES)]  # fmt: skip
        every = dict(zip(names, struct.unpack(f"={count}Q", values)))  # noqa: B905 - as Python 3.6 has it
        return {name.strip(): every[name] for name in [name for name in names if is_loss(name)][:MOST]}
    return {}


def ask(asking: socket.socket, name: str, request: bytes) -> bytes:
    """Return what the kernel makes of a request about an interface."""
    data = array.array("B", request)
    fcntl.ioctl(asking.fileno(), SIOCETHTOOL, struct.pack("16sP", name.encode(), data.buffer_info()[0]))
    return data.tobytes()


def growth(before: "dict[str, dict[str, int]]", after: "dict[str, dict[str, int]]") -> "dict[str, dict[str, int]]":
    """Return by how much each counter has grown, where it has; one that fell has begun anew."""
    found = {}
    for name, numbers in after.items():
        old = before.get(name, {})
        grown = {counter: value - old[counter] for counter, value in numbers.items() if value > old.get(counter, value)}
        if grown:
            found[name] = grown
    return found


def addresses() -> "dict[str, str]":
    """Return the interface of each first IPv4 address of this node."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                answer = fcntl.ioctl(asking.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found[socket.inet_ntoa(answer[20:24])] = name
    return found


def streams() -> "list[dict[str, object]]":
    """List this process's TCP connections to other addresses, with what each has counted (tcp(7), TCP_INFO)."""
    found = []
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError, ValueError, struct.error):
            if not str(os.readlink(str(path))).startswith("socket:"):  # noqa: PTH115 - as Python 3.6 has it
                continue
            with socket.socket(fileno=os.dup(int(path.name))) as stream:
                if stream.type != socket.SOCK_STREAM or stream.family not in (socket.AF_INET, socket.AF_INET6):
                    continue
                local, peer = (plain(each[0]) for each in (stream.getsockname(), stream.getpeername()))
                info = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                if local != peer and len(info) >= INFO_BYTES:
                    info += bytes(256 - len(info))
                    counted = {name: struct.unpack_from("=I", info, at)[0] for name, at in COUNTED_AT.items()}
                    found.append({"from": local, "to": peer, **counted})
    return found


def plain(address: str) -> str:
    """Return an IPv4 address that stands in an IPv6 one as itself."""
    return address[7:] if address.startswith("::ffff:") and "." in address else address
