"""Members of a zip archive that came as bytes, those in Zstandard too, which zipfile does not undo before 3.14."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib

from prefillgate.importers.records import Damaged

ZSTANDARD = 93
MAX_MEMBER_BYTES = 256 * 1024 * 1024
MAGIC = b"PK\x03\x04"
_LOCAL = struct.Struct("<26xHH")  # at the end of the fixed part of a local header: lengths of name and extra field
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, struct.error)


class Archive:
    """A zip archive. Raises `Damaged` where it is none."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        try:
            self._file = zipfile.ZipFile(io.BytesIO(data))
        except (*_DAMAGE, ValueError) as error:
            raise Damaged("a damaged or incomplete zip archive") from error

    def names(self) -> list[str]:
        """The members in the order in which they were written, each once: a name written again is its last version."""
        return list(dict.fromkeys(self._file.namelist()))

    def read(self, name: str) -> bytes:
        """What a member holds. Raises `Damaged` above `MAX_MEMBER_BYTES`, whatever its header claims."""
        found = self._file.getinfo(name)
        try:
            if found.compress_type == ZSTANDARD:
                data = self._zstandard(found)
            else:
                with self._file.open(found) as member:
                    data = member.read(MAX_MEMBER_BYTES + 1)
        except (*_DAMAGE, ValueError) as error:
            raise Damaged("a member of the archive that cannot be decompressed") from error
        if len(data) > MAX_MEMBER_BYTES:
            raise Damaged(f"a member of the archive above {MAX_MEMBER_BYTES} bytes")
        return data

    def _zstandard(self, found: zipfile.ZipInfo) -> bytes:
        import zstandard

        begin = found.header_offset
        named, extra = _LOCAL.unpack(self._data[begin : begin + _LOCAL.size])
        begin += _LOCAL.size + named + extra
        packed = io.BytesIO(self._data[begin : begin + found.compress_size])
        try:
            with zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as member:
                data: bytes = member.read(MAX_MEMBER_BYTES + 1)
        except zstandard.ZstdError as error:
            raise Damaged("a member of the archive that cannot be decompressed") from error
        if len(data) <= MAX_MEMBER_BYTES and (len(data) != found.file_size or zlib.crc32(data) != found.CRC):
            raise Damaged("a member of the archive that cannot be decompressed")
        return data
