"""The leaf types of the site description: how each reads its text, and what it refuses."""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Callable
from datetime import date
from types import MappingProxyType
from typing import Any, NewType, TypeVar

from lumisite.errors import UnfitError, wrong_type
from lumisite.site.cpu_list import CpusetError, parse_number_list
from lumisite.site.versions import Version, VersionRange, parse_version, parse_version_range

T = TypeVar("T")

#: Text without line breaks or control characters.
Line = NewType("Line", str)
#: A day or a month: `2026-01-21`, `2024-08`.
Date = NewType("Date", str)
#: The name of something on the machine, or a pattern of names, which is what it looks like.
Name = NewType("Name", str)
#: The value of a variable, kept byte for byte.
Value = NewType("Value", str)
#: An absolute path without `,` and `:`, which separate binds and their parts.
AbsolutePath = NewType("AbsolutePath", str)
#: A path that modules, scripts and commands take as it is: letters, digits and `._+@=-`.
RootPath = NewType("RootPath", str)
#: A path below the directory of the file that names it.
RelativePath = NewType("RelativePath", str)
#: The name of an environment variable.
VariableName = NewType("VariableName", str)
#: A release of a stack, as a key: a version that keeps its spelling.
ReleaseName = NewType("ReleaseName", str)
#: An option of a container runtime that brings the GPUs in, without its dashes.
Flag = NewType("Flag", str)
#: What leads from a library to a root, the library first: `libdriver.so.1 <- libfabric.so.1 <- root`.
Chain = NewType("Chain", tuple[str, ...])
#: A PCI bus, `c1`, or the whole address of a device on it, `0000:c1:00.0`.
PciBus = NewType("PciBus", str)
#: In hexadecimal, as lspci(8) prints it: domain, bus, and device with function.
PCI_BUS = re.compile(r"(?i:([0-9a-f]{4,8}:)?([0-9a-f]{2})(:[0-9a-f]{2}\.[0-7])?)", re.ASCII)
#: Kernel CPU numbers, in the order in which they were typed.
CpuList = NewType("CpuList", tuple[int, ...])
#: Where a bind or a setting takes effect: `task` (the srun helper), or the name of a module.
Place = NewType("Place", str)
TASK = Place("task")


#: Linux takes names of files of 255 bytes, and some are made of a key, versions and a suffix.
LONGEST_NAME = 100
#: Categories of Unicode: control and format characters, separators of lines, and surrogates, which UTF-8 cannot write.
_CONTROLS = ("Cc", "Cf", "Cs", "Zl", "Zp")


def full_pci_bus(text: str) -> str:
    """Return the whole PCI address of a GPU that a site names by its bus (`c1`); empty if it is no PCI address.

    >>> full_pci_bus("C1"), full_pci_bus("0000:c1:00.0"), full_pci_bus("first")
    ('0000:c1:00.0', '0000:c1:00.0', '')
    """
    found = PCI_BUS.fullmatch(text.strip().lower())
    return f"{found[1] or '0000:'}{found[2]}{found[3] or ':00.0'}" if found else ""


def read_line(text: str) -> Line:
    """Parse text for people: one line; the line break at the end of a YAML block is dropped."""
    line = text.removesuffix("\n")
    _require_visible(line)
    if not line.strip():
        raise UnfitError("has no text", "write one, or remove the key")
    return Line(line)


def read_name(text: str) -> Name:
    """Parse a name, a path or a pattern of either, as the machine has it."""
    return Name(read_line(text))


def read_date(text: str) -> Date:
    """Parse a day or a month, as ISO 8601 writes it."""
    try:
        if not re.fullmatch(r"[0-9]{4}-[0-9]{2}(-[0-9]{2})?", text, re.ASCII):
            raise ValueError
        date.fromisoformat(text if len(text) == 10 else f"{text}-01")
    except ValueError:
        raise wrong_type(text, "date", "2026-01-21") from None
    return Date(text)


def read_value(text: str) -> Value:
    """Parse the value of a variable, byte for byte: one line, since a task prolog cannot set more than one."""
    _require_visible(text)
    return Value(text)


def read_absolute_path(text: str) -> AbsolutePath:
    """Parse a host path; `,` and `:` separate binds, and the runtimes read `"` as a quote in a list of binds.

    SingularityCE also splits at `^` (its pkg/util/bind/bind.go).
    """
    _require_visible(text)
    normal = posixpath.normpath(text) if text else ""
    if not text.startswith("/"):
        raise wrong_type(text, "full path", "/opt")
    if normal.removeprefix("/") != text.removeprefix("/") or text.startswith("//"):
        raise UnfitError(f"{text!r} is not in its shortest form", f"write /{normal.lstrip('/')}")
    for character in ',:"^':
        if character in text:
            raise UnfitError(f"{text!r} contains {character!r}", "use a text without it")
    return AbsolutePath(text)


def read_root_path(text: str) -> RootPath:
    """Parse where releases are deployed: MODULEPATH splits at `:`, and shells at spaces and quotes."""
    if odd := re.search(r"[^A-Za-z0-9._+@=/-]", text):
        raise UnfitError(f"{text!r} contains {odd[0]!r}", "allowed: letters, digits and ._+@=-")
    return RootPath(read_absolute_path(text))


def read_relative_path(text: str) -> RelativePath:
    """Parse a path below a directory, which it cannot leave by `..`."""
    _require_visible(text)
    if not text or text.startswith("/") or posixpath.normpath(text) != text or text in (".", "..") or text[:3] == "../":
        raise wrong_type(text, "normal relative path", "plans/image.yaml")
    return RelativePath(text)


def _matching(pattern: str, name: str, example: str, kind: Callable[[str], T]) -> Callable[[str], T]:
    """Return a reader of ASCII texts that match a pattern; `name` is what they are called."""

    def read(text: str) -> T:
        if not re.fullmatch(pattern, text, re.ASCII):
            raise wrong_type(text, name, example)
        return kind(text)

    return read


def read_cpu_list(text: str) -> CpuList:
    """Parse kernel CPU numbers: `0-7,64-71`."""
    try:
        numbers = parse_number_list(text)
    except CpusetError as error:
        raise UnfitError(error.finding.message, error.finding.advice) from None
    if not numbers:
        raise UnfitError("names nothing", "example: 0-7,64-71")
    return CpuList(numbers)


def is_file_name(text: str) -> bool:
    """Return whether a text can be a file's name, and part of a longer one, in any shell and any tool."""
    fits = 0 < len(text.encode()) <= LONGEST_NAME and not text.startswith((".", "-"))
    return fits and not set(text) & set("/\\ \t'\"")


def source_ids(text: str) -> tuple[str, ...]:
    """Return the names of `sources` that a `source` refers to.

    >>> source_ids("DOC README; TM 205-Containers")
    ('DOC', 'TM')
    """
    return tuple((part.split() or [""])[0].rstrip(",:") for part in text.split(";"))


def _require_visible(text: str) -> None:
    """Raise `UnfitError` for line breaks and for control characters, among them those that change what is displayed."""
    if text.isascii() and text.isprintable():
        return
    for character in text:
        if unicodedata.category(character) in _CONTROLS and character != "\t":
            advice = "write one line of visible text; `>-` folds lines"
            raise UnfitError(f"contains U+{ord(character):04X}", advice)


def is_no(value: object) -> bool:
    """Return whether a value is the text of a truth value that does not hold."""
    return isinstance(value, str) and value.lower() in ("no", "false", "off")


SCALARS: MappingProxyType[Any, Callable[[str], Any]] = MappingProxyType(
    {
        str: read_name,
        Line: read_line,
        Name: read_name,
        Date: read_date,
        Chain: lambda text: Chain(tuple(read_line(text).split(" <- "))),
        Value: read_value,
        Place: read_line,
        AbsolutePath: read_absolute_path,
        RootPath: read_root_path,
        RelativePath: read_relative_path,
        VariableName: _matching(
            r"[A-Za-z_][A-Za-z0-9_]*",
            "variable name",
            "letters, digits and _",
            VariableName,
        ),
        ReleaseName: lambda text: ReleaseName(str(parse_version(text))),
        Flag: _matching(r"[A-Za-z][A-Za-z0-9-]*", "flag", "nv", Flag),
        CpuList: read_cpu_list,
        PciBus: _matching(
            PCI_BUS.pattern,
            "PCI bus",
            "c1 or 0000:c1:00.0",
            PciBus,
        ),
        # Without a sign, and `010` is refused rather than guessed.
        int: _matching(r"0|[1-9][0-9]{0,11}", "whole number", "491520", int),
        # Without an exponent.
        float: _matching(r"(?![0.]*$)[0-9]{1,9}(\.[0-9]{1,9})?", "number above 0", "0.05", float),
        bool: _matching(
            "(?i:yes|true|on|no|false|off)",
            "truth value",
            "yes or no",
            lambda text: not is_no(text),
        ),
        Version: parse_version,
        VersionRange: parse_version_range,
    }
)
