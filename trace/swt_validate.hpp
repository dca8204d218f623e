// What must hold in an .swt file beyond its checksums (private to trace/).
#pragma once

#include <array>
#include <functional>
#include <string>

#include "trace/model.hpp"
#include "trace/swt_format.hpp"

namespace swaplab::swt {

using SectionTable = std::array<SectionEntry, kSections.size()>;

// Text columns as they lie in the file.
struct TextColumns {
  Column<std::uint64_t> name_offsets;
  Column<char> name_chars;
  Column<std::uint64_t> header_offsets;
  Column<char> header_chars;
};

// Checks every column of `trace` (read from untrusted bytes) against the rules of TraceBuilder and the
// canonical form that it produces, then fills in names, header and iterations. Nothing is dereferenced
// before it was found to be in range. Throws Error(input) "<name>: byte B: section 'S', row R: ...".
// `passed` (may be empty) is called after each stretch of a few MB.
void validate(Trace& trace, const TextColumns& text, const SectionTable& table, const std::string& name,
              const std::function<void()>& passed = {});

}  // namespace swaplab::swt
