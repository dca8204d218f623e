#include "trace/byte_source.hpp"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "trace/atomic_file.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw Error(ErrorKind::input, path + ": " + what);
}

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

class PlainSource final : public ByteSource {
 public:
  PlainSource(std::string path, File file) : path_(std::move(path)), file_(std::move(file)) {}
  std::size_t read(char* into, std::size_t size) override {
    const std::size_t count = std::fread(into, 1, size, file_.get());
    if (count == 0 && std::ferror(file_.get()) != 0)
      fail(path_, std::string("cannot read: ") + std::strerror(errno));
    return count;
  }
  const char* compression() const override { return ""; }

 private:
  std::string path_;
  File file_;
};

// Members one after another, as gzip itself reads them; zeros after the last (padding) are none.
class GzipSource final : public ByteSource {
 public:
  GzipSource(std::string path, File file)
      : path_(std::move(path)), file_(std::move(file)), buffer_(std::size_t{1} << 18) {
    if (inflateInit2(&stream_, 16 + 15) != Z_OK) fail(path_, "cannot start gzip decompression");
  }
  ~GzipSource() override { inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;
  std::size_t read(char* into, std::size_t size) override {
    const auto asked = static_cast<uInt>(std::min<std::size_t>(size, std::size_t{1} << 30));
    stream_.next_out = reinterpret_cast<Bytef*>(into);
    stream_.avail_out = asked;
    while (asked != 0 && stream_.avail_out == asked) {
      if (ended_ && !next_member()) return 0;
      if (stream_.avail_in == 0 && !refill())
        fail(path_,
             "the gzip stream is damaged or ends early, at compressed byte " + std::to_string(offset()));
      const int status = inflate(&stream_, Z_NO_FLUSH);
      ended_ = status == Z_STREAM_END;
      if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
        fail(path_,
             "the gzip stream is damaged or ends early, near compressed byte " + std::to_string(offset()));
    }
    return asked - stream_.avail_out;
  }
  const char* compression() const override { return ".gz"; }

 private:
  bool refill() {
    stream_.avail_in = static_cast<uInt>(std::fread(buffer_.data(), 1, buffer_.size(), file_.get()));
    if (stream_.avail_in == 0 && std::ferror(file_.get()) != 0)
      fail(path_, std::string("cannot read: ") + std::strerror(errno));
    stream_.next_in = buffer_.data();
    read_ += stream_.avail_in;
    return stream_.avail_in != 0;
  }
  std::uint64_t offset() const { return read_ - stream_.avail_in; }
  bool next_member() {
    for (;;) {
      if (stream_.avail_in == 0 && !refill()) return false;
      if (*stream_.next_in != 0) break;
      ++stream_.next_in;
      --stream_.avail_in;
    }
    if (*stream_.next_in != 0x1f)
      fail(path_, "compressed byte " + std::to_string(offset()) +
                      ": expected the end of the file or another gzip stream after the first");
    inflateReset(&stream_);
    ended_ = false;
    return true;
  }

  std::string path_;
  File file_;
  std::vector<Bytef> buffer_;
  z_stream stream_{};
  std::uint64_t read_ = 0;
  bool ended_ = false;
};

class ZstdSource final : public ByteSource {
 public:
  ZstdSource(std::string path, File file)
      : path_(std::move(path)),
        file_(std::move(file)),
        stream_(ZSTD_createDStream()),
        buffer_(ZSTD_DStreamInSize()) {}
  ~ZstdSource() override { ZSTD_freeDStream(stream_); }
  ZstdSource(const ZstdSource&) = delete;
  ZstdSource& operator=(const ZstdSource&) = delete;
  std::size_t read(char* into, std::size_t size) override {
    ZSTD_outBuffer out{into, size, 0};
    while (out.pos == 0) {
      if (in_.pos == in_.size) {
        in_ = {buffer_.data(), std::fread(buffer_.data(), 1, buffer_.size(), file_.get()), 0};
        read_ += in_.size;
        if (in_.size == 0) {
          if (pending_ != 0)
            fail(path_, "the zstd stream ends early, at compressed byte " + std::to_string(read_));
          return 0;
        }
      }
      pending_ = ZSTD_decompressStream(stream_, &out, &in_);
      if (ZSTD_isError(pending_) != 0)
        fail(path_, "the zstd stream is damaged, near compressed byte " +
                        std::to_string(read_ - in_.size + in_.pos) + ": " + ZSTD_getErrorName(pending_));
    }
    return out.pos;
  }
  const char* compression() const override { return ".zst"; }

 private:
  std::string path_;
  File file_;
  ZSTD_DStream* stream_;
  std::vector<char> buffer_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  std::size_t pending_ = 0;
  std::uint64_t read_ = 0;
};

bool ends_with(const std::string& text, const char* end) {
  return text.size() >= std::strlen(end) &&
         text.compare(text.size() - std::strlen(end), std::string::npos, end) == 0;
}

std::string gzip(const std::string& text) {
  z_stream stream{};
  // 16 + 15: gzip wrapper with a header that holds no time and no name, so equal input gives equal bytes.
  if (deflateInit2(&stream, 9, Z_DEFLATED, 16 + 15, 9, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw Error(ErrorKind::output, "cannot start gzip compression");
  }
  std::string out;
  std::vector<char> buffer(1u << 18);
  std::size_t given = 0;
  int status = Z_OK;
  while (status != Z_STREAM_END) {
    if (stream.avail_in == 0 && given < text.size()) {
      const std::size_t part = std::min<std::size_t>(text.size() - given, 1u << 30);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data() + given));
      stream.avail_in = static_cast<uInt>(part);
      given += part;
    }
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    status = deflate(&stream, given == text.size() ? Z_FINISH : Z_NO_FLUSH);
    out.append(buffer.data(), buffer.size() - stream.avail_out);
  }
  deflateEnd(&stream);
  return out;
}

}  // namespace

std::unique_ptr<ByteSource> open_byte_source(const std::string& path) {
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) fail(path, "is a directory, expected a file");
  // The magic bytes are read first and then read again, so the file must be one that can be rewound.
  if (std::filesystem::exists(path, code) && !std::filesystem::is_regular_file(path, code))
    fail(path, "is not a regular file; expected a file that can be read twice, not a pipe or device");
  File file(std::fopen(path.c_str(), "rb"));
  if (!file) fail(path, std::string("cannot open: ") + std::strerror(errno));
  unsigned char magic[4] = {};
  const std::size_t count = std::fread(magic, 1, 4, file.get());
  if (count == 0) fail(path, "is empty");
  if (count >= 2 && magic[0] == 0x1f && magic[1] == 0x8b) {
    std::rewind(file.get());
    return std::make_unique<GzipSource>(path, std::move(file));
  }
  std::rewind(file.get());
  if (count == 4 && magic[0] == 0x28 && magic[1] == 0xb5 && magic[2] == 0x2f && magic[3] == 0xfd) {
    return std::make_unique<ZstdSource>(path, std::move(file));
  }
  return std::make_unique<PlainSource>(path, std::move(file));
}

std::string compress_for(const std::string& path, std::string text) {
  if (ends_with(path, ".gz")) return gzip(text);
  if (!ends_with(path, ".zst")) return text;
  std::string out(ZSTD_compressBound(text.size()), '\0');
  const std::size_t size = ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 12);
  if (ZSTD_isError(size) != 0) throw Error(ErrorKind::output, path + ": zstd: " + ZSTD_getErrorName(size));
  out.resize(size);
  return out;
}

void write_file_atomically(const std::string& path, const std::string& content) {
  AtomicFile file(path);
  file.append(content.data(), content.size());
  file.commit();
}

}  // namespace swaplab
