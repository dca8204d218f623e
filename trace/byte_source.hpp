// Bytes of a file, decompressed on the way (private to trace/).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace swaplab {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills up to `size` bytes; 0 at the end. Throws Error(input) naming the file when the file cannot
  // be read or its compressed stream is damaged or ends early.
  virtual std::size_t read(char* into, std::size_t size) = 0;
  virtual const char* compression() const = 0;  // "", ".gz", ".zst"
};

// Recognises gzip and zstd by their magic bytes.
std::unique_ptr<ByteSource> open_byte_source(const std::string& path);

// Compresses by extension (.gz, .zst, else none). Throws Error(output).
std::string compress_for(const std::string& path, std::string text);

// Writes a file whole: a temporary file beside it is renamed when complete. Throws Error(output).
void write_file_atomically(const std::string& path, const std::string& content);

}  // namespace swaplab
