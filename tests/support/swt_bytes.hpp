// The bytes of an .swt file, damaged on purpose: checksums are made right again, so that what lies behind
// them is reached. Shared by tests and the fuzzer.
#pragma once

#include <xxhash.h>

#include <cstddef>
#include <cstring>
#include <string>

#include "trace/swt_format.hpp"

namespace swaplab::test {

inline swt::SectionEntry section_entry(const std::string& file, std::size_t section) {
  swt::SectionEntry entry{};
  std::memcpy(&entry, file.data() + sizeof(swt::Header) + section * sizeof entry, sizeof entry);
  return entry;
}

// Where row `row` of a section starts.
inline std::size_t row_at(const std::string& file, swt::Section section, std::size_t row) {
  const swt::SectionEntry entry = section_entry(file, static_cast<std::size_t>(section));
  return static_cast<std::size_t>(entry.offset + row * entry.element_bytes);
}

// Checksums of all sections that lie within the file, then that of the header. Short files stay as they are.
inline void repair_checksums(std::string& file) {
  if (file.size() < swt::kTableBytes) return;
  for (std::size_t i = 0; i < swt::kSections.size(); ++i) {
    swt::SectionEntry entry = section_entry(file, i);
    if (entry.offset > file.size() || entry.bytes > file.size() - entry.offset) continue;
    entry.checksum = XXH3_64bits(file.data() + entry.offset, static_cast<std::size_t>(entry.bytes));
    std::memcpy(file.data() + sizeof(swt::Header) + i * sizeof entry, &entry, sizeof entry);
  }
  const std::string covered =
      file.substr(0, offsetof(swt::Header, checksum)) +
      file.substr(sizeof(swt::Header), swt::kSections.size() * sizeof(swt::SectionEntry));
  const std::uint64_t checksum = XXH3_64bits(covered.data(), covered.size());
  std::memcpy(file.data() + offsetof(swt::Header, checksum), &checksum, sizeof checksum);
}

}  // namespace swaplab::test
