// Reading and writing the binary trace format (private to trace/; use trace/io.hpp).
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "trace/model.hpp"

namespace swaplab {

// Writes atomically, section by section, without a copy of the trace in memory. Throws Error(output).
// Equal columns give equal bytes. `file_backed`: the columns are views of shared file mappings (and only
// then), whose pages leave the resident set as soon as they are written.
void write_swt(const Trace& trace, const std::string& path, bool file_backed = false);

// Maps the file; the trace's columns refer to the mapping, which lives as long as any of them. Checks
// checksums and every rule of TraceBuilder, so that nothing in the file can make later code misbehave.
// Throws Error(input) with section and byte. The file must not be changed in place while it is in use.
Trace read_swt(const std::string& path);

// The same for a file that need not fit in memory. `forget_pages` (set by the call) takes the file's pages
// out of the resident set; they come back when they are looked at. Checking keeps one byte per storage.
Trace map_swt(const std::string& path, std::function<void()>& forget_pages);

// The same from memory (copied); `name` is used in messages.
Trace parse_swt(std::span<const std::byte> file, const std::string& name);

bool is_swt(std::span<const std::byte> first_bytes);

}  // namespace swaplab
