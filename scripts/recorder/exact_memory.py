"""Every call of the CPU allocator, in order: what a dispatch mode cannot see (scratch inside operators,
the order of frees within a gap). A small C++ observer sits in the slot that torch.profiler would use, so
both cannot run at once.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile

import torch

from . import RecorderError

SOURCE = r"""
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <cstdint>
#include <mutex>
#include <vector>
namespace {
struct Call { uint64_t address; int64_t bytes; };
std::mutex mutex;  // backward and intra-operator threads report too
std::vector<Call> calls;
struct Observer : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void* address, int64_t bytes, TOTAL, TOTAL, c10::Device device) override {
    if (device.type() != c10::DeviceType::CPU) return;
    std::lock_guard<std::mutex> lock(mutex);
    calls.push_back({reinterpret_cast<uint64_t>(address), bytes});
  }
  bool memoryProfilingEnabled() const override { return true; }
};
}  // namespace
extern "C" void observer_start() {
  c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Observer>());
}
extern "C" void observer_stop() { c10::ThreadLocalDebugInfo::_pop(c10::DebugInfoKind::PROFILER_STATE); }
// Hands over at most `room` calls, oldest first; returns how many.
extern "C" size_t observer_take(uint64_t* address, int64_t* bytes, size_t room) {
  std::lock_guard<std::mutex> lock(mutex);
  const size_t n = calls.size() < room ? calls.size() : room;
  for (size_t i = 0; i < n; ++i) { address[i] = calls[i].address; bytes[i] = calls[i].bytes; }
  calls.erase(calls.begin(), calls.begin() + static_cast<std::ptrdiff_t>(n));
  return n;
}
"""
ROOM = 4096


def _headers():
    own = os.path.join(os.path.dirname(torch.__file__), "include")
    for folder in (own, "/usr/include"):
        if os.path.isfile(os.path.join(folder, "c10", "core", "Allocator.h")):
            return folder
    raise RecorderError("--exact-memory needs PyTorch's C++ headers (Debian: apt-get install libtorch-dev)")


def _core_library():
    """Path of the c10 library that this process runs on; the observer must link to the very same."""
    with open("/proc/self/maps", encoding="utf-8") as f:
        for line in f:
            path = line.rstrip("\n").partition("/")[2]
            if os.path.basename(path).startswith("libc10.so"):
                return "/" + path
    raise RecorderError("--exact-memory: PyTorch's libc10 is not among the loaded libraries")


def _compile():
    """Path of the observer as a shared library, built once per PyTorch version and kept in the user's cache."""
    headers = _headers()
    with open(os.path.join(headers, "c10", "core", "Allocator.h"), encoding="utf-8") as f:
        text = f.read()
    signature = text[text.index("reportMemoryUsage("):]
    total = "int64_t" if "int64_t total_allocated" in signature[:300] else "size_t"
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    version = f"{torch.__version__} {total} {abi}"
    key = hashlib.sha256((SOURCE + version + _core_library()).encode()).hexdigest()[:16]
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "swaplab")
    target = os.path.join(cache, f"exact_memory_{key}.so")
    if os.path.exists(target):
        return target
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        raise RecorderError("--exact-memory needs a C++ compiler (Debian: apt-get install g++)")
    os.makedirs(cache, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        source, built = os.path.join(folder, "observer.cpp"), os.path.join(folder, "observer.so")
        with open(source, "w", encoding="utf-8") as f:
            f.write(SOURCE)
        done = subprocess.run([compiler, "-std=c++17", "-O1", "-shared", "-fPIC", f"-DTOTAL={total}",
                               f"-D_GLIBCXX_USE_CXX11_ABI={abi}", f"-I{headers}", source, "-o", built,
                               _core_library()],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            last = done.stdout.strip().splitlines()
            raise RecorderError("--exact-memory: the allocator observer does not compile: "
                                + next((line for line in last if "error" in line), last[-1] if last else "?"))
        os.replace(built, target)
    return target


class ExactMemory:
    """Context manager; take() gives [(address, signed bytes)] since the last call."""

    def __init__(self):
        self._library = ctypes.CDLL(_compile())
        self._library.observer_take.restype = ctypes.c_size_t
        self._library.observer_take.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        self._address = (ctypes.c_uint64 * ROOM)()
        self._bytes = (ctypes.c_int64 * ROOM)()

    def __enter__(self):
        self._library.observer_start()
        return self

    def __exit__(self, *_):
        self._library.observer_stop()

    def take(self):
        taken = []
        while True:
            n = self._library.observer_take(self._address, self._bytes, ROOM)
            taken += zip(self._address[:n], self._bytes[:n])
            if n < ROOM:
                return taken


def scratch(calls):
    """Peak bytes inside an operator beyond what stays when it returns (its outputs)."""
    level = peak = 0
    for _, size in calls:
        level += size
        peak = max(peak, level)
    return peak - max(level, 0)
