// Which format a file is in, and which one a name asks for.
#include "trace/io.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <span>
#include <string_view>
#include <system_error>

#include "trace/byte_source.hpp"
#include "trace/error.hpp"
#include "trace/jsonl_reader.hpp"
#include "trace/swt.hpp"

namespace swaplab {
namespace {

bool starts_like_swt(const std::string& path) {
  std::array<char, 8> first{};
  std::ifstream file(path, std::ios::binary);
  file.read(first.data(), first.size());
  return is_swt(std::as_bytes(std::span(first)).first(static_cast<std::size_t>(file.gcount())));
}

}  // namespace

Trace read_trace(const std::string& path, ReadReport* report,
                 const std::function<void(std::uint64_t)>& progress) {
  ReadReport own;
  ReadReport& r = report != nullptr ? *report : own;
  std::error_code code;
  if (!std::filesystem::is_regular_file(path, code) || !starts_like_swt(path)) {
    const auto source = open_byte_source(path);
    r.file_bytes = std::filesystem::file_size(path, code);
    return read_jsonl(*source, path, r, progress);
  }
  r.file_bytes = std::filesystem::file_size(path, code);
  Trace trace = read_swt(path);
  r.format = "swt";
  r.text_bytes = r.file_bytes;
  r.has_end_record = true;  // the header's totals and checksums say the same
  if (progress) progress(r.text_bytes);
  return trace;
}

MappedTrace map_trace(const std::string& path) {
  std::error_code code;
  if (!std::filesystem::exists(path, code)) throw Error(ErrorKind::input, path + ": there is no such file");
  if (!std::filesystem::is_regular_file(path, code))
    throw Error(ErrorKind::input, path + ": not a regular file; expected a .swt file");
  if (std::filesystem::file_size(path, code) == 0) throw Error(ErrorKind::input, path + ": is empty");
  if (!starts_like_swt(path)) {
    throw Error(ErrorKind::input, path +
                                      ": not a .swt file, the only format that is read piece by piece; "
                                      "write one with 'swaplab trace convert'");
  }
  MappedTrace mapped;
  mapped.trace = map_swt(path, mapped.forget_pages);
  return mapped;
}

void write_trace(const Trace& trace, const std::string& path) {
  const auto ends = [&](std::string_view end) { return std::string_view(path).ends_with(end); };
  if (ends(".swt")) return write_swt(trace, path);
  if (std::none_of(std::begin(kTraceEndings), std::end(kTraceEndings), ends)) {
    throw Error(ErrorKind::usage,
                path + ": the format follows the extension: .swt, .jsonl, .jsonl.gz or .jsonl.zst");
  }
  write_file_atomically(path, compress_for(path, jsonl_text(trace)));
}

}  // namespace swaplab
