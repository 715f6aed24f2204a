"""Archives and file lists out of dataset rows, read as if they were hostile.

Nothing is extracted to disk: the members of an archive are read into memory, with limits, and what
a row asks for is written into the workspace under checked names.
"""

from __future__ import annotations

import base64
import binascii
import io
import os
import tarfile
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["AssetError", "SeedFile", "pack", "safe_name", "unpack", "write_files"]

#: Limits of an archive after inflating.
MAX_TOTAL = 64 * 1024 * 1024
MAX_FILE = 32 * 1024 * 1024
MAX_MEMBERS = 2000
#: Extended headers (long names, pax records) larger than this are an attack on memory.
MAX_HEADER = 64 * 1024
MAX_HEADERS = 1024 * 1024
MAX_GZIP_MEMBERS = 16
MAX_PATH, MAX_PART, MAX_DEPTH = 1024, 255, 64
_BLOCK = 512
_SET_ID = 0o6000
#: Names that some systems take for devices.
_DEVICES = frozenset(
    ["con", "prn", "aux", "nul", *(f"{name}{n}" for name in ("com", "lpt") for n in range(1, 10))]
)


class AssetError(Exception):
    """An archive or a file list cannot be used; the message says which member and why."""


@dataclass(frozen=True, slots=True)
class SeedFile:
    """A file to put into a workspace: its checked POSIX name, its bytes, whether it may be run."""

    name: str
    data: bytes
    executable: bool = False


def safe_name(name: str) -> str:
    """*name* as a relative POSIX path that stays inside, without ``.`` parts and doubled slashes.

    Raises
    ------
    AssetError
        It is empty, absolute, leads out, is too long or deep, or holds characters that would be
        something else on another system.
    """
    shown = repr(name[:80])
    if "\0" in name or any(ord(char) < 32 or ord(char) == 127 for char in name):
        raise AssetError(f"the name {shown} holds control characters")
    try:
        size = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        raise AssetError(f"the name {shown} is not UTF-8") from None
    if name.startswith("/"):
        raise AssetError(f"the name {shown} is absolute")
    if "\\" in name or name[1:2] == ":":
        raise AssetError(f"the name {shown} holds a backslash or a drive letter")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise AssetError(f"the name {shown} leads out of the directory")
    if not parts:
        raise AssetError(f"the name {shown} names no file")
    if size > MAX_PATH or len(parts) > MAX_DEPTH:
        raise AssetError(f"the name {shown} is too long or too deep")
    for part in parts:
        if len(part.encode("utf-8")) > MAX_PART:
            raise AssetError(f"the name {shown} has a part that is too long")
        if part.rstrip(". ") != part or part.partition(".")[0].lower() in _DEVICES:
            raise AssetError(f"the name {shown} is not the same on every system")
    return "/".join(parts)


class Names:
    """Names seen so far; one that clashes with another on some system is refused."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], tuple[bool, str]] = {}

    def add(self, name: str, *, directory: bool = False) -> None:
        """Take *name*, and its directories.

        Raises
        ------
        AssetError
            It is there already, differs from another one in case or Unicode form only, or would
            lie under a file.
        """
        parts = name.split("/")
        key = tuple(unicodedata.normalize("NFC", part).casefold() for part in parts)
        for depth in range(1, len(parts)):
            self._put(key[:depth], True, "/".join(parts[:depth]), name)
        if not directory and key in self._seen:
            raise AssetError(f"the name {name!r} stands twice, or clashes with another")
        self._put(key, directory, name, name)

    def _put(self, key: tuple[str, ...], directory: bool, name: str, wanted: str) -> None:
        if self._seen.setdefault(key, (directory, name)) != (directory, name):
            raise AssetError(f"the name {wanted!r} clashes with {self._seen[key][1]!r}")


def unpack(text: str) -> dict[str, SeedFile]:
    """The files of a base64 text of a ``tar.gz``, by name.

    Regular files and directories only.  Owners and times are ignored, and of the modes all but
    whether the owner may run a file.

    Raises
    ------
    AssetError
        Not base64, not gzip, not tar, cut off, too large, or a member that may not be there.
    """
    try:
        packed = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise AssetError(f"is not base64: {error}") from None
    files: dict[str, SeedFile] = {}
    names = Names()
    total = 0
    for count, member in enumerate(_members(_inflate(packed)), 1):
        if count > MAX_MEMBERS:
            raise AssetError(f"the archive has more than {MAX_MEMBERS} members")
        is_dir = member.kind == b"5"
        if is_dir and member.name.strip("/") in ("", "."):
            continue  # "./"
        name = safe_name(member.name.rstrip("/") if is_dir else member.name)
        _check_member(member, name)
        names.add(name, directory=is_dir)
        if is_dir:
            continue
        total += len(member.data)
        if total > MAX_TOTAL:
            raise AssetError(f"the archive holds more than {MAX_TOTAL >> 20} MiB")
        files[name] = SeedFile(name, bytes(member.data), bool(member.mode & 0o100))
    return files


def _check_member(member: _Member, name: str) -> None:
    if member.kind in (b"1", b"2"):
        raise AssetError(f"the member {name!r} is a link")
    if member.kind not in (b"0", b"\0", b"7", b"5"):
        raise AssetError(f"the member {name!r} is neither a file nor a directory")
    if member.mode & _SET_ID:
        raise AssetError(f"the member {name!r} has a set-id bit")


@dataclass(frozen=True, slots=True)
class _Member:
    name: str
    kind: bytes
    mode: int
    data: memoryview


def _members(data: bytes) -> Iterator[_Member]:
    """The members of a tar archive (ustar, GNU long names, pax), header by header.

    Read by hand, and in linear time: what libraries make of hostile headers differs between
    versions of Python, and some of it takes hours.  Source: POSIX.1-2017, ``pax``.
    """
    view = memoryview(data)
    position = extended = 0
    long_name: str | None = None
    pax: dict[str, str] = {}
    while True:
        header = data[position : position + _BLOCK]
        if len(header) < _BLOCK:
            raise AssetError("is not a usable tar archive: it is cut off")
        if not any(header):
            if any(data[position:]):
                raise AssetError("is not a usable tar archive: there is more behind its end")
            return
        _check_sum(header, position)
        kind = header[156:157]
        size = _number(header[124:136])
        if kind in b"xXgLK":
            extended += size
            if size > MAX_HEADER or extended > MAX_HEADERS:
                raise AssetError(f"the archive has extended headers of {extended} bytes")
        elif "size" in pax:
            if not pax["size"].isascii() or not pax["size"].isdigit() or len(pax["size"]) > 18:
                raise AssetError("is not a usable tar archive: a size is no number")
            size = int(pax["size"])
        if size > MAX_FILE:
            raise AssetError(
                f"the member {_name(header)[:80]!r} is larger than {MAX_FILE >> 20} MiB"
            )
        position += _BLOCK
        body = view[position : position + size]
        if len(body) < size:
            raise AssetError(f"the member {_name(header)[:80]!r} is cut off")
        position += -(-size // _BLOCK) * _BLOCK
        if kind == b"L":
            long_name = _decoded(bytes(body).split(b"\0")[0])
        elif kind in (b"x", b"X", b"g"):
            found = _pax(bytes(body))
            if kind == b"g" and {"path", "size", "linkpath"} & found.keys():
                raise AssetError("is not a usable tar archive: one name or size for all members")
            pax = found if kind != b"g" else pax
        elif kind != b"K":
            if kind == b"S" or any(key.startswith("GNU.sparse") for key in pax):
                raise AssetError("the archive holds a sparse file")
            name = pax.get("path", long_name if long_name is not None else _name(header))
            # old archives mark a directory by its name alone
            old = kind in (b"0", b"\0") and name.endswith("/")
            yield _Member(name, b"5" if old else kind, _number(header[100:108]), body)
            long_name, pax = None, {}


def _name(header: bytes) -> str:
    name = header[:100].split(b"\0")[0]
    prefix = header[345:500].split(b"\0")[0] if header[257:262] == b"ustar" else b""
    if header[257:265] == b"ustar  \0":  # GNU keeps times there
        prefix = b""
    return _decoded(prefix + b"/" + name if prefix else name)


def _decoded(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _number(field: bytes) -> int:
    """A number of a header: octal text, or base 256 where its first bit is set."""
    if field[:1] >= b"\x80":
        value = int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
        return value if field[0] == 0x80 else 1 << 62  # a negative one is too large, too
    text = field.split(b"\0")[0].strip()
    try:
        return int(text or b"0", 8)
    except ValueError:
        raise AssetError("is not a usable tar archive: a header holds no number") from None


def _check_sum(header: bytes, position: int) -> None:
    signed = sum(byte - 256 if byte > 127 else byte for byte in header)
    blank = 8 * 32 - sum(header[148:156])
    told = _number(header[148:156])
    blank_signed = 8 * 32 - sum(b - 256 if b > 127 else b for b in header[148:156])
    if told not in (sum(header) + blank, signed + blank_signed):
        raise AssetError(f"is not a usable tar archive: a bad checksum at byte {position}")


def _pax(body: bytes) -> dict[str, str]:
    """The records of a pax header: ``LENGTH KEY=VALUE`` and a line feed each."""
    found: dict[str, str] = {}
    position = 0
    while position < len(body) and body[position]:
        space = body.find(b" ", position, position + 12)
        digits = body[position:space] if space > 0 else b""
        end = position + int(digits) if digits.isdigit() else 0
        key, equals, value = body[space + 1 : end - 1].partition(b"=")
        if not (space < end <= len(body) and equals and body[end - 1 : end] == b"\n"):
            raise AssetError("is not a usable tar archive: a pax header is malformed")
        found[_decoded(key)] = _decoded(value)
        position = end
    return found


def _inflate(packed: bytes) -> bytes:
    """All gzip members of *packed*, whose checksums are right, up to the limit."""
    limit = MAX_TOTAL + (MAX_MEMBERS + 20) * 3 * _BLOCK
    out = bytearray()
    for _ in range(MAX_GZIP_MEMBERS):
        inflater = zlib.decompressobj(wbits=31)
        try:
            out += inflater.decompress(packed, limit + 1 - len(out))
        except zlib.error as error:
            raise AssetError(f"is not gzip: {error}") from None
        if len(out) > limit:
            raise AssetError(f"the archive is larger than {MAX_TOTAL >> 20} MiB when inflated")
        if not inflater.eof:
            raise AssetError("is not gzip: it is cut off")
        packed = inflater.unused_data.lstrip(b"\0")
        if not packed:
            return bytes(out)
    raise AssetError(f"is not gzip: it has more than {MAX_GZIP_MEMBERS} parts")


def pack(files: Mapping[str, bytes]) -> str:
    """The base64 text of a ``tar.gz`` with *files*; the same files give the same text."""
    import gzip

    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size = len(files[name])
            member.mode = 0o644
            archive.addfile(member, io.BytesIO(files[name]))
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=packed, mode="wb", compresslevel=9, mtime=0) as file:
        file.write(raw.getvalue())
    return base64.b64encode(packed.getvalue()).decode("ascii")


def seed_files(entries: Sequence[object], assets: Mapping[str, SeedFile]) -> list[SeedFile]:
    """What a list of ``{path, content}`` and ``{source, dest}`` entries puts into a workspace.

    ``source`` is looked up among *assets*; a directory there is taken whole.  A ``dest`` that ends
    in a slash keeps the source's name.

    Raises
    ------
    AssetError
        Naming the entry by its number, from 1.
    """
    files: list[SeedFile] = []
    names = Names()
    total = 0
    for number, entry in enumerate(entries, 1):
        try:
            for file in _entry(entry, assets):
                names.add(file.name)
                files.append(file)
                total += len(file.data)
                if total > MAX_TOTAL or len(files) > MAX_MEMBERS:
                    most = f"{MAX_TOTAL >> 20} MiB or {MAX_MEMBERS} files"
                    raise AssetError(f"with it the workspace holds more than {most}")
        except AssetError as error:
            raise AssetError(f"entry {number}: {error}") from None
    return files


def _entry(entry: object, assets: Mapping[str, SeedFile]) -> Iterable[SeedFile]:
    if not isinstance(entry, Mapping):
        raise AssetError(f"expected an object, found {type(entry).__name__}")
    inline = "content" in entry
    if inline and ("source" in entry or "dest" in entry):
        raise AssetError("it has both a content and a source")
    wanted = ("path", "content") if inline else ("source", "dest")
    for key in wanted:
        if not isinstance(entry.get(key), str):
            found = f"found {type(entry[key]).__name__}" if key in entry else "it is missing"
            raise AssetError(f"expected a text under {key!r}, {found}")
    if inline:
        try:
            data = entry["content"].encode("utf-8")
        except UnicodeEncodeError:
            raise AssetError("its content is not text (a lone surrogate)") from None
        return [SeedFile(safe_name(entry["path"]), data)]
    return _copied(entry["source"], entry["dest"], assets)


def _copied(source: str, dest: str, assets: Mapping[str, SeedFile]) -> Iterable[SeedFile]:
    name = safe_name(source)
    if dest.endswith("/"):
        dest += name.rpartition("/")[2]
    target = safe_name(dest)
    if name in assets:
        return [SeedFile(target, assets[name].data, assets[name].executable)]
    below = [asset for asset in assets if asset.startswith(f"{name}/")]
    if not below:
        raise AssetError(f"the source {source!r} is not among the row's assets")
    return [
        SeedFile(f"{target}{asset[len(name) :]}", assets[asset].data, assets[asset].executable)
        for asset in below
    ]


def write_files(directory: Path, files: Iterable[SeedFile]) -> None:
    """Write *files* below the empty *directory*, following no link and replacing nothing."""
    made = {""}
    root = os.fspath(directory)
    for file in files:
        parent = file.name.rpartition("/")[0]
        if parent not in made:
            os.makedirs(f"{root}/{parent}", exist_ok=True)
            made.add(parent)
        mode = 0o755 if file.executable else 0o644
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
        fd = os.open(f"{root}/{file.name}", flags, mode)
        with os.fdopen(fd, "wb") as out:
            out.write(file.data)
