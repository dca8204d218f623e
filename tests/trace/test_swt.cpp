// Damage of every kind to an .swt file: one clear error with section and byte.
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "tests/support/random_trace.hpp"
#include "tests/support/shared.hpp"
#include "tests/support/swt_bytes.hpp"
#include "trace/builder.hpp"
#include "trace/error.hpp"
#include "trace/extend.hpp"
#include "trace/io.hpp"
#include "trace/swt.hpp"

namespace swaplab {
namespace {

using swt::Section;

std::string swt_of(const Trace& trace) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("swaplab-swt-" + std::to_string(::getpid()) + ".swt"))
          .string();
  write_trace(trace, path);
  std::ifstream in(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  std::filesystem::remove(path);
  return bytes;
}

Trace parse(const std::string& file) {
  return parse_swt(std::as_bytes(std::span(file)), "f");
}

std::string error_of(const std::string& file) {
  try {
    parse(file);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
  return "no error";
}

// Two operators, three storages, every kind of row.
Trace worked() {
  TraceBuilder b;
  b.set_header({"t", "synthetic", "cuda:0", "m", R"({"seed":1})"});
  const SigId sig = b.add_signature({"aten.mm", R"({"in":[1]})", 10, Bytes{8}, Bytes{8}, Bytes{0}, false});
  const StorageId w = b.alloc(Bytes{100}, "cuda:0", true);
  b.tag(w, StorageClass::parameter, "w");
  b.mark(MarkKind::iter_begin, "train", 0, Nanos{1});
  const StorageId a = b.alloc(Bytes{50}, "cuda:0", false);
  const std::vector<StorageId> first{w}, second{a, w}, outputs{a};
  b.op({sig, Phase::forward, 0, SyncKind::none, Nanos{5}, Nanos{-1}, Nanos{-1}, first, outputs, {}});
  b.resize(w, Bytes{100}, Bytes{120});
  b.saved(outputs, 0, -1);
  b.memory_event(0xabc, Bytes{-50}, true);
  b.op({sig, Phase::backward, 1, SyncKind::item, Nanos{6}, Nanos{-1}, Nanos{-1}, second, {}, first});
  b.free(a);
  b.mark(MarkKind::iter_end, "", 0, Nanos{2});
  return b.finish();
}

TEST_CASE("what lies in the file is what the format says") {
  const std::string file = swt_of(worked());
  CHECK(file.substr(1, 3) == "SWT");
  CHECK(file.size() % 64 == 0);
  for (std::size_t i = 0; i < swt::kSections.size(); ++i) {
    const swt::SectionEntry entry = test::section_entry(file, i);
    CHECK(entry.offset % 64 == 0);
    CHECK(entry.checksum == XXH3_64bits(file.data() + entry.offset, entry.bytes));
  }
  CHECK(file.find("aten.mm") != std::string::npos);
  std::string same = file;
  test::repair_checksums(same);
  CHECK(same == file);
  CHECK(trace_hash(parse(file)) == trace_hash(worked()));
}

TEST_CASE("every flipped bit and every truncation of a file is noticed") {
  const std::string file = swt_of(worked());
  for (std::size_t byte = 0; byte < file.size(); ++byte) {
    std::string bad = file;
    bad[byte] = static_cast<char>(bad[byte] ^ (1 << (byte % 8)));
    CAPTURE(byte);
    const std::string message = error_of(bad);
    CHECK(message.find("f: byte ") == 0);
  }
  for (std::size_t size = 0; size < file.size(); ++size) {
    CAPTURE(size);
    CHECK(error_of(file.substr(0, size)) != "no error");
  }
  CHECK(error_of("") == "f: is empty");
  CHECK(error_of(file.substr(0, 30)).find("ends inside the header") != std::string::npos);
  CHECK(error_of(file.substr(0, 300)).find("ends inside the section table") != std::string::npos);
  CHECK(error_of(file.substr(0, file.size() - 64)).find("it is truncated") != std::string::npos);
  CHECK(error_of(file + "x").find("its header says") != std::string::npos);
}

TEST_CASE("a file of another version names both") {
  std::string file = swt_of(worked());
  file[8] = 2;
  CHECK(error_of(file) == "f: byte 8: format version 2 is not supported, expected 1");
}

TEST_CASE("a flipped bit in a column names its section and byte") {
  std::string file = swt_of(worked());
  const std::size_t at = test::row_at(file, Section::op_in, 0);
  file[at] = static_cast<char>(file[at] ^ 1);
  CHECK(error_of(file) == "f: byte " + std::to_string(at) +
                              ": section 'ops.in' does not match its checksum: the file is damaged");
}

TEST_CASE("values that checksums vouch for are checked all the same") {
  struct Case {
    Section section;
    std::size_t row, byte;
    unsigned char value;
    const char* expected;
  };
  const std::vector<Case> cases = {
      {Section::name_offsets, 1, 0, 1, "name 0 must be the empty text"},
      {Section::name_offsets, 2, 7, 0xff, "offsets must not fall"},
      {Section::name_chars, 0, 0, 0xff, "not UTF-8"},
      {Section::header_chars, 0, 0, 0x80, "not UTF-8"},
      {Section::header_offsets, 5, 0, 1, "offsets must not fall"},
      {Section::signature_name, 0, 3, 1, "no such name"},
      {Section::signature_detail, 0, 0, 1, "a signature's detail must be"},
      {Section::signature_flop, 0, 7, 0x80, "at least -1"},
      {Section::signature_view, 0, 0, 2, "must be 0 or 1"},
      {Section::storage_bytes, 0, 7, 0x80, "sizes are >= 0"},
      {Section::storage_bytes, 0, 0, 101, "the storage has 101 B"},
      {Section::storage_bytes, 0, 7, 0x7f, "the storage has 91513144428168479"},
      {Section::storage_bytes, 1, 0, 51, "replaying gives"},
      {Section::storage_device, 0, 2, 9, "no such name"},
      {Section::storage_class, 0, 0, 6, "unknown value"},
      {Section::storage_external, 0, 0, 2, "must be 0 or 1"},
      {Section::storage_external, 0, 0, 0, "does not agree with the allocation"},
      {Section::storage_birth, 1, 0, 1, "expected gap 0"},
      {Section::storage_death, 1, 0, 1, "expected gap 2"},
      {Section::storage_death, 0, 0, 0, "never freed"},
      {Section::op_signature, 0, 0, 1, "no such signature"},
      {Section::op_phase, 0, 0, 9, "unknown value"},
      {Section::op_stream, 0, 0, 64, "streams are 0 to 63"},
      {Section::op_sync, 0, 0, 5, "unknown value"},
      {Section::op_device_time, 0, 7, 0x80, "at least -1"},
      {Section::op_in_begin, 0, 0, 1, "must start at 0"},
      {Section::op_in_begin, 1, 3, 1, "must not fall"},
      {Section::op_in_begin, 2, 0, 4, "offsets end at 4, expected 3"},
      {Section::op_in, 0, 3, 1, "no such storage"},
      {Section::op_in, 0, 0, 1, "reads storage 1, which does not live"},
      {Section::op_out, 0, 0, 0, "which does not return it"},
      {Section::op_written, 0, 0, 2, "no such storage"},
      {Section::gap_begin, 1, 3, 1, "must not fall"},
      {Section::gap_begin, 1, 0, 2, "which does not live"},
      {Section::events, 0, 0, 7, "unknown kind"},
      {Section::events, 0, 1, 1, "padding must be zero"},
      {Section::events, 0, 4, 1, "allocates storage 1, expected 0"},
      {Section::events, 1, 4, 1, "names row 1, expected 0"},
      {Section::marks, 0, 0, 7, "unknown kind"},
      {Section::marks, 0, 0, 1, "has no text"},
      {Section::marks, 0, 4, 200, "no such name"},
      {Section::marks, 0, 1, 1, "padding must be zero"},
      {Section::marks, 0, 15, 0x80, "at least -1"},
      {Section::marks, 1, 8, 3, "iteration 3 ends inside iteration 0"},
      {Section::resizes, 0, 0, 2, "no such storage"},
      {Section::resizes, 0, 4, 1, "padding must be zero"},
      {Section::saved, 0, 0, 1, "must follow each other"},
      {Section::saved_storages, 0, 0, 2, "no such storage"},
      {Section::memory_events, 0, 16, 2, "'in_op' must be 0 or 1"},
      {Section::memory_events, 0, 20, 1, "'in_op' must be 0 or 1"},
  };
  const std::string file = swt_of(worked());
  for (const Case& c : cases) {
    std::string bad = file;
    bad[test::row_at(bad, c.section, c.row) + c.byte] = static_cast<char>(c.value);
    test::repair_checksums(bad);
    const std::string message = error_of(bad);
    CAPTURE(std::string(swt::kSections[static_cast<std::size_t>(c.section)].name));
    CAPTURE(c.row);
    CAPTURE(message);
    CHECK(message.find(c.expected) != std::string::npos);
    CHECK(message.find("f: byte ") == 0);
  }
  std::string bad = file;
  bad[offsetof(swt::Header, peak_bytes)] = 1;
  test::repair_checksums(bad);
  CHECK(error_of(bad).find("header: peak") != std::string::npos);
}

TEST_CASE("a section table that lies is refused before it is followed") {
  const std::string file = swt_of(worked());
  for (std::size_t i = 0; i < swt::kSections.size(); ++i) {
    for (std::size_t field = 0; field < sizeof(swt::SectionEntry) - 8; ++field) {
      for (const int value : {0x00, 0x01, 0x7f, 0xff}) {
        std::string bad = file;
        char& byte = bad[sizeof(swt::Header) + i * sizeof(swt::SectionEntry) + field];
        if (byte == static_cast<char>(value)) continue;
        byte = static_cast<char>(value);
        test::repair_checksums(bad);
        CHECK(error_of(bad).find("f: byte ") == 0);
      }
    }
  }
}

TEST_CASE("random damage behind right checksums never goes unnoticed as a broken trace") {
  std::uint64_t state = 1, refused = 0, accepted = 0;
  const auto next = [&state] { return state = state * 6364136223846793005u + 1442695040888963407u; };
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::string file = swt_of(test::random_trace(seed));
    for (int round = 0; round < 60; ++round) {
      std::string bad = file;
      bad[(next() >> 20) % bad.size()] = static_cast<char>(next() >> 40);
      test::repair_checksums(bad);
      try {
        const Trace trace = parse(bad);
        // What is accepted is a trace like any other: it survives the text format.
        CHECK(trace_hash(parse_jsonl(jsonl_text(trace), "again")) == trace_hash(trace));
        ++accepted;
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  CHECK(refused > 300);
  CHECK(accepted > 10);
}

TEST_CASE("bundled recordings keep their hash through .swt, also when continued") {
  for (const char* name : {"gpt_small", "gpt_varied", "resnet50_b256", "moe"}) {
    CAPTURE(name);
    const Trace trace = read_trace(test::source_path(std::string("configs/traces/") + name + ".jsonl.gz"));
    CHECK(trace_hash(parse(swt_of(trace))) == trace_hash(trace));
  }
  const Trace longer =
      extend_iterations(read_trace(test::source_path("configs/traces/gpt_small.jsonl.gz")), 12);
  CHECK(trace_hash(parse(swt_of(longer))) == trace_hash(longer));
}

TEST_CASE("an unknown extension lists all, a bad path leaves nothing") {
  const Trace trace = worked();
  CHECK_THROWS_WITH_AS(write_trace(trace, "x.bin"),
                       "x.bin: the format follows the extension: .swt, .jsonl, .jsonl.gz or .jsonl.zst",
                       Error);
  const auto folder =
      std::filesystem::temp_directory_path() / ("swaplab-swt-d-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder / "taken.swt");
  CHECK_THROWS_AS(write_trace(trace, (folder / "no/such/x.swt").string()), Error);
  CHECK_THROWS_AS(write_trace(trace, (folder / "taken.swt").string()), Error);
  CHECK(std::distance(std::filesystem::directory_iterator(folder), {}) == 1);  // no partial file
  std::ofstream((folder / "empty.swt").string());
  CHECK_THROWS_WITH_AS(read_trace((folder / "empty.swt").string()), doctest::Contains("is empty"), Error);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace swaplab
