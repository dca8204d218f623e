#include "trace/growing_column.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "trace/error.hpp"

namespace swaplab {
namespace {

// Small steps bound what a column keeps resident; a whole number of pages on every Linux machine.
constexpr std::size_t kFileStep = std::size_t{1} << 20;

[[noreturn]] void fail(const std::string& folder, const char* what) {
  throw Error(ErrorKind::output, folder + ": " + what + ": " + std::strerror(errno));
}

// An open file without a name: it goes away with the process, however that ends.
int unnamed_file(const std::string& folder) {
  const int file = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0) return file;
  // Some file systems cannot create unnamed files.
  std::string path = folder + "/swaplab-column-XXXXXX";
  const int named = ::mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(path.c_str());
  return named;
}

}  // namespace

GrowingMemory::~GrowingMemory() {
  if (folder_.empty()) {
    std::free(data_);  // NOLINT(cppcoreguidelines-no-malloc): realloc has no equal in C++
    return;
  }
  if (data_ != nullptr) ::munmap(data_, capacity_);
  if (file_ >= 0) ::close(file_);
}

void GrowingMemory::grow(std::size_t bytes) {
  if (bytes <= capacity_) return;
  folder_.empty() ? grow_heap(std::max(bytes, capacity_ * 2)) : grow_file(bytes);
}

void GrowingMemory::grow_heap(std::size_t bytes) {
  void* larger = std::realloc(data_, bytes);
  if (larger == nullptr) throw std::bad_alloc();
  data_ = static_cast<std::byte*>(larger);
  capacity_ = bytes;
}

void GrowingMemory::grow_file(std::size_t bytes) {
  if (file_ < 0) {
    file_ = unnamed_file(folder_);
    if (file_ < 0) fail(folder_, "cannot create a temporary file");
  }
  const std::size_t larger =
      (bytes + kFileStep - 1) / kFileStep * kFileStep + std::min(capacity_, 3 * kFileStep);
  // Reserved, not sparse: a full disk is an error here and not a signal at some later store.
  const int code = ::posix_fallocate(file_, 0, static_cast<off_t>(larger));
  if (code != 0) {
    errno = code;
    fail(folder_, "cannot enlarge a temporary file");
  }
  if (data_ != nullptr) ::madvise(data_, capacity_, MADV_DONTNEED);  // shared: the file keeps the bytes
  void* mapped = data_ == nullptr ? ::mmap(nullptr, larger, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0)
                                  : ::mremap(data_, capacity_, larger, MREMAP_MAYMOVE);
  if (mapped == MAP_FAILED) fail(folder_, "cannot map a temporary file");
  data_ = static_cast<std::byte*>(mapped);
  capacity_ = larger;
}

void GrowingMemory::shrink(std::size_t bytes) {
  if (!folder_.empty() || bytes == capacity_) return;  // a file's tail costs no memory
  if (bytes == 0) {
    std::free(data_);  // NOLINT(cppcoreguidelines-no-malloc)
    data_ = nullptr;
  } else if (void* smaller = std::realloc(data_, bytes); smaller != nullptr) {
    data_ = static_cast<std::byte*>(smaller);
  }
  capacity_ = bytes;
}

}  // namespace swaplab
