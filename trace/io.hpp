// Reading and writing traces. The format is recognised by content, not by name.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trace/model.hpp"

namespace swaplab {

struct ReadReport {
  std::string format;                 // "jsonl", "jsonl.gz", "jsonl.zst", "swt"
  std::vector<std::string> warnings;  // each once, e.g. unknown keys with their first line
  bool has_end_record = false;
  std::uint64_t file_bytes = 0, text_bytes = 0;  // on disk, decompressed
};

// Reads JSON lines schema v1 (plain, gzip, zstd; lines up to 64 MiB) or .swt, which is memory-mapped: the
// trace keeps the mapping, and the file must not be changed in place meanwhile (writers here replace it).
// Throws Error(input) with file and line, or section and byte, and what was expected. `progress` (may be
// empty) gets decompressed bytes so far.
Trace read_trace(const std::string& path, ReadReport* report = nullptr,
                 const std::function<void(std::uint64_t)>& progress = {});

// A trace that need not fit in memory: a .swt file whose pages are mapped, and can be given back.
struct MappedTrace {
  Trace trace;
  std::function<void()> forget_pages;  // takes the file's pages out of the resident set; never empty
};
// Checks everything that read_trace checks, with one byte of memory per storage. Throws as read_trace, and
// Error(input) for another format (says how to convert it).
MappedTrace map_trace(const std::string& path);

// Parses schema v1 text already in memory; `name` is used in messages.
Trace parse_jsonl(std::string_view text, const std::string& name, ReadReport* report = nullptr);
// Schema v1 text. Signatures that no operator uses are left out; the others are numbered by first use.
std::string jsonl_text(const Trace& trace);

// What a trace's file name ends in; the format follows it.
inline constexpr std::string_view kTraceEndings[] = {".swt", ".jsonl", ".jsonl.gz", ".jsonl.zst"};
// Writes by extension (kTraceEndings). Atomic: a temporary file beside the
// target is renamed when complete. Throws Error(output).
void write_trace(const Trace& trace, const std::string& path);

// 64-bit hash of the trace's meaning (header, all columns and tables), independent of file format, of how
// names and signatures are numbered and of signatures that nothing uses.
std::uint64_t trace_hash(const Trace& trace);

}  // namespace swaplab
