// A file to import, or bytes in memory that stand for one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "trace/byte_source.hpp"

namespace swaplab {

class ImportInput {
 public:
  // Reads the first 64 KiB (decompressed). Throws Error(input): no file, a directory, empty, damaged.
  static ImportInput file(std::string path);
  // `bytes` must outlive the input.
  static ImportInput memory(std::string name, std::string_view bytes);

  const std::string& name() const { return name_; }
  std::string_view head() const { return head_; }
  bool in_memory() const { return in_memory_; }
  bool head_is_all() const { return head_is_all_; }
  // "" for bytes in memory and for a compressed file: only a plain file can be opened by a library.
  const std::string& plain_path() const { return plain_path_; }
  // From the start, decompressed.
  std::unique_ptr<ByteSource> open() const;
  // All of it. Throws Error(input) when longer than `limit` bytes.
  std::string read_all(std::uint64_t limit) const;

 private:
  void read_head();

  std::string name_, plain_path_, head_;
  std::string_view bytes_;
  bool in_memory_ = false, head_is_all_ = false;
};

}  // namespace swaplab
