"""What every script inside a job needs: who it is, what is mounted where, and a way to leave its record.

It runs in whatever Python an image has, 3.6 among them, and with nothing but the standard library. A probe records and
never fails on what it looks at.
"""

import errno
import json
import os
import pwd
import socket
import sys
from pathlib import Path

#: The rank of a task that does not see Slurm's variables, as in a container that starts with a clean environment.
UNKNOWN = -1
#: The state of a socket in /proc/net/tcp (proc(5)).
LISTENING = "0A"


def identity() -> "dict[str, object]":
    """Return what each record begins with: the node, and which task of the step this is."""
    return {
        "host": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        "rank": number("SLURM_PROCID", UNKNOWN),
        "local_rank": number("SLURM_LOCALID"),
    }


def number(name: str, otherwise: int = 0) -> int:
    """Return a variable as a number."""
    try:
        return int(os.environ.get(name, ""))
    except ValueError:
        return otherwise


def environment(prefixes: "tuple[str, ...]") -> "dict[str, str]":
    """Return the variables whose names begin so; bytes that are no text are written as escapes."""
    return {name: printable(value) for name, value in sorted(os.environ.items()) if name.startswith(prefixes)}


def printable(text: str) -> str:
    """Make a text fit for JSON, whatever bytes the system had in it."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def mounts() -> "list[dict[str, str]]":
    """List what is mounted, the last of several on one place last (proc(5), /proc/pid/mountinfo)."""
    found = []
    for line in text_of("/proc/self/mountinfo").splitlines():
        words = line.split(" ")
        try:
            after = words.index("-")
            found.append({"point": _plain(words[4]), "root": _plain(words[3]), "type": words[after + 1]})
        except (ValueError, IndexError):
            continue
    return found


def mount_of(path: str, mounted: "list[dict[str, str]]") -> "dict[str, str]":
    """Return the mount that a path is on; `path` has no links in it."""
    best = {"point": "", "root": "", "type": ""}
    for mount in mounted:
        inside = path == mount["point"] or path.startswith(mount["point"].rstrip("/") + "/")
        if inside and len(mount["point"]) >= len(best["point"]):
            best = mount
    return best


def _plain(word: str) -> str:
    for code, letter in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        word = word.replace(code, letter)
    return word


def text_of(path: str) -> str:
    """Return a file's text, or nothing where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="backslashreplace")
    except OSError:
        return ""


def mapped(names: "tuple[str, ...]") -> "list[str]":
    """List the files in use, libraries above all, whose names begin so."""
    found = {"/" + line.partition("/")[2] for line in text_of("/proc/self/maps").splitlines()}
    return sorted(path for path in found if path.rpartition("/")[2].startswith(names))


def users_of_port(port: int) -> "list[str]":
    """Return whose processes listen on a TCP port of this node; which ones only root may see."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in text_of(table).splitlines()[1:]:
            fields = line.split()  # proc(5): local address, state and, further on, uid
            if int(fields[1].rpartition(":")[2], 16) == port and fields[3] == LISTENING:
                found.add(user_name(int(fields[7])))
    return sorted(found)


def user_name(uid: int) -> str:
    """Return the name of a user, or the number where it has none here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def words(error: BaseException) -> str:
    """Return what an error is and the first line of what it says."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {printable(first[:500])}"


def shares_node() -> bool:
    """Return whether a node has several ranks of this step, which leave their records in one file."""
    return number("SLURM_STEP_NUM_TASKS", 1) > number("SLURM_STEP_NUM_NODES", 1)


def leave(record: "dict[str, object]") -> None:
    """Write the record of this task whole, or not at all: OUTDIR/RANK.json, or a line of OUTDIR/HOST.jsonl.

    Of several lines of one rank the last counts.
    """
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    if shares_node():
        append(out / "{}.jsonl".format(record["host"]), json.dumps(record, sort_keys=True))
        return
    name = file_name(record)
    partial = out / f"{name}.json.partial"
    partial.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    partial.rename(out / f"{name}.json")


def file_name(record: "dict[str, object]") -> str:
    """Return a name that no other task of the step has, without an ending."""
    return "{host}-{0}".format(os.getpid(), **record) if record["rank"] == UNKNOWN else str(record["rank"])


def append(path: Path, line: str) -> None:
    """Append a line in one write, so that lines of other ranks stay whole; it begins behind what was torn."""
    data = f"\n{line}\n".encode()
    handle = os.open(str(path), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        if os.write(handle, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    finally:
        os.close(handle)


def option(name: str, otherwise: str = "") -> str:
    """Return the value of `--name VALUE` on the command line, the last one if there are several."""
    values = options(name)
    return values[-1] if values else otherwise


def options(name: str) -> "list[str]":
    """Return every value of `--name VALUE` on the command line."""
    words = sys.argv[2:]
    return [words[index + 1] for index, word in enumerate(words[:-1]) if word == f"--{name}"]
