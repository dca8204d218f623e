// Byte layout of the binary trace format `.swt`, version 1 (private to trace/; trace/README.md has the
// table).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "trace/model.hpp"

namespace swaplab::swt {

// Columns are used as they lie in the file, so a big-endian host is refused here and not at run time.
static_assert(std::endian::native == std::endian::little, ".swt is little-endian");

// A byte above 127 and both line ends: a transfer that changes text is noticed.
constexpr std::array<unsigned char, 8> kMagic = {0x89, 'S', 'W', 'T', '\r', '\n', 0x1a, '\n'};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kAlignment = 64;

struct Header {
  std::array<unsigned char, 8> magic;
  std::uint32_t version;
  std::uint32_t section_count;
  std::uint64_t file_bytes;
  std::int64_t peak_bytes, live_bytes;
  std::uint64_t reserved[2];  // zero
  std::uint64_t checksum;     // XXH3-64 of the 56 bytes before and of the section table
};
static_assert(sizeof(Header) == 64);

struct SectionEntry {
  std::uint32_t id;
  std::uint32_t element_bytes;
  std::uint64_t count;
  std::uint64_t offset;    // multiple of kAlignment; sections follow each other, zeros between
  std::uint64_t bytes;     // count * element_bytes
  std::uint64_t checksum;  // XXH3-64 of the bytes
};
static_assert(sizeof(SectionEntry) == 40);

// clang-format off
// All sections of version 1, in file order; an entry's id is its place here + 1.
enum class Section : std::uint32_t {
  header_offsets, header_chars, name_offsets, name_chars,
  signature_name, signature_detail, signature_flop, signature_read, signature_written, signature_scratch,
  signature_view,
  storage_bytes, storage_device, storage_class, storage_name, storage_external, storage_birth, storage_death,
  op_signature, op_phase, op_stream, op_sync, op_device_time, op_host_time, op_host_gap,
  op_in_begin, op_out_begin, op_written_begin, op_in, op_out, op_written,
  gap_begin, events, marks, resizes, saved, saved_storages, memory_events,
};

struct SectionInfo {
  std::string_view name;
  std::uint32_t element_bytes;
};
constexpr std::array<SectionInfo, 38> kSections = {{
    {"header.offsets", 8}, {"header.chars", 1}, {"names.offsets", 8}, {"names.chars", 1},
    {"signatures.name", 4}, {"signatures.detail", 4}, {"signatures.flop", 8}, {"signatures.read", 8},
    {"signatures.written", 8}, {"signatures.scratch", 8}, {"signatures.view", 1},
    {"storages.bytes", 8}, {"storages.device", 4}, {"storages.class", 1}, {"storages.name", 4},
    {"storages.external", 1}, {"storages.birth_gap", 4}, {"storages.death_gap", 4},
    {"ops.signature", 4}, {"ops.phase", 1}, {"ops.stream", 2}, {"ops.sync", 1}, {"ops.device_time", 8},
    {"ops.host_time", 8}, {"ops.host_gap", 8}, {"ops.in_begin", 4}, {"ops.out_begin", 4},
    {"ops.written_begin", 4}, {"ops.in", 4}, {"ops.out", 4}, {"ops.written", 4},
    {"gap_begin", 4}, {"events", 8}, {"marks", 24}, {"resizes", 24}, {"saved", 24}, {"saved_storages", 4},
    {"memory_events", 24},
}};
// clang-format on
static_assert(static_cast<std::size_t>(Section::memory_events) + 1 == kSections.size());

constexpr std::uint64_t kTableBytes = sizeof(Header) + kSections.size() * sizeof(SectionEntry);
constexpr std::uint64_t aligned(std::uint64_t offset) {
  return (offset + kAlignment - 1) / kAlignment * kAlignment;
}

// Rows as they lie in the file: the in-memory structs with their padding spelled out as zeros.
struct EventRow {
  std::uint8_t kind, zero[3];
  std::uint32_t arg;
};
struct MarkRow {
  std::uint8_t kind, zero[3];
  std::uint32_t text;
  std::int64_t number, time;
};
struct ResizeRow {
  std::uint32_t storage, zero;
  std::int64_t from, to;
};
struct MemoryRow {
  std::uint64_t address;
  std::int64_t bytes;
  std::uint8_t in_op, zero[7];
};
static_assert(sizeof(EventRow) == sizeof(Event) && offsetof(Event, arg) == offsetof(EventRow, arg));
static_assert(sizeof(MarkRow) == sizeof(Mark) && offsetof(Mark, text) == offsetof(MarkRow, text) &&
              offsetof(Mark, number) == offsetof(MarkRow, number) &&
              offsetof(Mark, time) == offsetof(MarkRow, time));
static_assert(sizeof(ResizeRow) == sizeof(Resize) && offsetof(Resize, from) == offsetof(ResizeRow, from) &&
              offsetof(Resize, to) == offsetof(ResizeRow, to));
static_assert(sizeof(MemoryRow) == sizeof(MemoryEvent) &&
              offsetof(MemoryEvent, in_op) == offsetof(MemoryRow, in_op));
static_assert(sizeof(Saved) == 24 && sizeof(Bytes) == 8 && sizeof(Nanos) == 8);

// Calls f(section, column) for every column of `trace` that is a section as it is; the header's text
// is not.
template <class AnyTrace, class Function>
void for_each_column(AnyTrace& t, const Function& f) {
  f(Section::signature_name, t.signatures.name);
  f(Section::signature_detail, t.signatures.detail);
  f(Section::signature_flop, t.signatures.flop);
  f(Section::signature_read, t.signatures.read);
  f(Section::signature_written, t.signatures.written);
  f(Section::signature_scratch, t.signatures.scratch);
  f(Section::signature_view, t.signatures.view);
  f(Section::storage_bytes, t.storages.bytes);
  f(Section::storage_device, t.storages.device);
  f(Section::storage_class, t.storages.cls);
  f(Section::storage_name, t.storages.name);
  f(Section::storage_external, t.storages.external);
  f(Section::storage_birth, t.storages.birth_gap);
  f(Section::storage_death, t.storages.death_gap);
  f(Section::op_signature, t.ops.signature);
  f(Section::op_phase, t.ops.phase);
  f(Section::op_stream, t.ops.stream);
  f(Section::op_sync, t.ops.sync);
  f(Section::op_device_time, t.ops.device_time);
  f(Section::op_host_time, t.ops.host_time);
  f(Section::op_host_gap, t.ops.host_gap);
  f(Section::op_in_begin, t.ops.in_begin);
  f(Section::op_out_begin, t.ops.out_begin);
  f(Section::op_written_begin, t.ops.written_begin);
  f(Section::op_in, t.ops.in);
  f(Section::op_out, t.ops.out);
  f(Section::op_written, t.ops.written);
  f(Section::gap_begin, t.gap_begin);
  f(Section::events, t.events);
  f(Section::marks, t.marks);
  f(Section::resizes, t.resizes);
  f(Section::saved, t.saved);
  f(Section::saved_storages, t.saved_storages);
  f(Section::memory_events, t.memory_events);
}

}  // namespace swaplab::swt
