// A file that appears complete or not at all (private to trace/).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace swaplab {

// Name of the temporary file beside `path` in which this process writes its content, with host and process,
// so that whoever finds it knows whose it is. Removes those of processes on this host that have ended (killed
// before they could): files of other hosts (a shared file system) and of living processes stay.
std::string partial_file(const std::string& path);

// Writes to a temporary file beside the target, which commit() renames into place; without commit() the
// temporary is removed. Every method throws Error(output) naming the target.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void append(const void* data, std::size_t size);
  // Overwrites bytes that were appended before.
  void write_at(std::uint64_t offset, const void* data, std::size_t size);
  std::uint64_t size() const { return size_; }
  void commit();

 private:
  [[noreturn]] void fail(const char* what);
  void write_all(const char* data, std::size_t size, std::uint64_t offset);

  std::string path_, temporary_;
  int file_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace swaplab
