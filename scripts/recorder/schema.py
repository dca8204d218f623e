"""Writes schema v1 lines to a plain, gzip or zstd file; the file appears only when complete."""

import gzip
import io
import json
import os
import shutil
import subprocess

from . import RecorderError

VERSION = 1


def encode(record):
    """One compact JSON line; key order is the insertion order, so output is reproducible."""
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False) + "\n"


def _zstd_module():
    try:
        import zstandard
    except ImportError:
        return None
    return zstandard


def _compressed(path, raw, name):
    """A binary writer over `raw` chosen by the ending of `name`, without times or names inside."""
    if name.endswith(".gz"):
        return gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=raw, mtime=0)
    if name.endswith(".zst"):
        zstandard = _zstd_module()
        if zstandard is None:
            raise RecorderError(f"{path}: writing .zst needs the Python module zstandard "
                                "(apt-get install python3-zstandard), or choose .gz")
        return zstandard.ZstdCompressor(level=19, write_checksum=True).stream_writer(raw, closefd=False)
    return raw


def open_text(path):
    """Opens a plain, .gz or .zst trace for reading as UTF-8 lines."""
    if path.endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8", newline="\n")
    if path.endswith(".zst"):
        zstandard = _zstd_module()
        if zstandard is not None:
            reader = zstandard.ZstdDecompressor().stream_reader(open(path, "rb"), closefd=True)
            return io.TextIOWrapper(reader, encoding="utf-8", newline="\n")
        if shutil.which("zstd"):
            done = subprocess.run(["zstd", "-dcq", path], check=True, stdout=subprocess.PIPE)
            return io.StringIO(done.stdout.decode("utf-8"))
        raise RecorderError(f"{path}: reading .zst needs the Python module zstandard or the program zstd")
    return open(path, "r", encoding="utf-8", newline="\n")


class AtomicFile:
    """Text sink that becomes `path` at commit(); discard() or an exception leaves nothing behind."""

    def __init__(self, path, pass_name=""):
        self.path = path
        if not path.endswith((".jsonl", ".jsonl.gz", ".jsonl.zst")):
            raise RecorderError(f"-o {path}: the name must end in .jsonl, .jsonl.gz or .jsonl.zst")
        folder, base = os.path.split(os.path.abspath(path))
        # The temporary name keeps the ending, so that the self-check can open it.
        self.temp = os.path.join(folder, f".{os.getpid()}.part{pass_name}.{base}")
        try:
            self._raw = open(self.temp, "wb")
        except OSError as e:
            raise RecorderError(f"-o {path}: cannot write there: {e.strerror}") from None
        try:
            self._out = _compressed(path, self._raw, base)
        except RecorderError:
            self.discard()
            raise

    def write(self, record):
        self._out.write(encode(record).encode("utf-8"))

    def close(self):
        """Flushes everything to the temporary file, which may then be read and checked."""
        try:
            if self._out is not self._raw:
                self._out.close()
            self._raw.close()
        except OSError as e:
            self.discard()
            raise RecorderError(f"-o {self.path}: cannot write: {e.strerror}") from None

    def commit(self):
        os.replace(self.temp, self.path)

    def discard(self):
        self._raw.close()
        if os.path.exists(self.temp):
            os.unlink(self.temp)
