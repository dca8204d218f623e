// CUDA memory snapshots: the pickle machine, what it refuses, and the corpus against its counts.
#include <nlohmann/json.hpp>

#include "tests/support/shared.hpp"
#include "tests/trace/import_samples.hpp"
#include "trace/import/pickle.hpp"

using swaplab::ImportResult;
using swaplab::Pickle;
using swaplab::PickleKind;
using namespace swaplab::test;
using namespace std::string_literals;

namespace {

std::string pickle_refusal(const std::string& bytes) {
  try {
    const Pickle p(bytes, "pickle");
  } catch (const swaplab::Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("pickle: plain values of every protocol") {
  // {'a': (1, -2, 2**40), 'b': [True, None, 'x']} in protocol 4.
  const std::string four =
      "\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01"
      "aK\x01J\xfe\xff\xff\xff\x8a\x06\x00\x00\x00\x00\x00\x01\x87\x8c\x01"
      "b]\x94(\x88N\x8c\x01xeu."s;
  const Pickle p(four, "four");
  const auto a = p.find(p.root(), "a"), b = p.find(p.root(), "b");
  REQUIRE(p.kind(a) == PickleKind::tuple);
  CHECK(p.integer(p.item(a, 0), 0) == 1);
  CHECK(p.integer(p.item(a, 1), 0) == -2);
  CHECK(p.integer(p.item(a, 2), 0) == std::int64_t{1} << 40);
  REQUIRE(p.size(b) == 3);
  CHECK(p.kind(p.item(b, 1)) == PickleKind::none);
  CHECK(p.text(p.item(b, 2)) == "x");
  // The same dict in protocol 0: text opcodes and numbered memory.
  const std::string zero = "(dp0\nVa\np1\n(I1\nI-2\nL1099511627776L\ntp2\nsVb\n(lp3\nI01\naNaVx\nas.";
  const Pickle q(zero, "zero");
  CHECK(q.integer(q.item(q.find(q.root(), "a"), 2), 0) == std::int64_t{1} << 40);
  CHECK(q.size(q.find(q.root(), "b")) == 3);
  // 2^63 needs 65 bits of two's complement: kept apart, never wrapped.
  const std::string wide = "\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00."s;
  const Pickle w(wide, "wide");
  CHECK(w.kind(w.root()) == PickleKind::wide_integer);
  CHECK(w.integer(w.root(), -1) == -1);
}

TEST_CASE("pickle: nothing is imported, called or read past the end") {
  CHECK(contains(pickle_refusal("cos\nsystem\n(S'true'\ntR."),
                 "byte 0: the pickle names a Python object (GLOBAL)"));
  CHECK(contains(pickle_refusal("\x80\x04\x8c\x02os\x8c\x06system\x93."s),
                 "byte 14: the pickle names a Python object"));
  CHECK(contains(pickle_refusal("]R."), "byte 1: the pickle asks for a call"));
  CHECK(contains(pickle_refusal("X\xff\xff\xff\xff"
                                "abc."s),
                 "byte 0: the pickle ends inside an operand of 4294967295 B"));
  CHECK(contains(pickle_refusal("]"), "byte 1: the pickle ends without STOP"));
  CHECK(contains(pickle_refusal("].]."), "byte 1: expected the end of the file after STOP, found 2 B more"));
  CHECK(contains(pickle_refusal("."), "byte 0: the stack is empty"));
  CHECK(contains(pickle_refusal("(K\x01K\x02K\x03"
                                "d."s),
                 "a key without a value"));
  CHECK(contains(pickle_refusal("h\x05."s), "nothing is remembered as 5"));
  CHECK(contains(pickle_refusal("K\x01K\x01"
                                "a."s),
                 "expected a list"));
  CHECK(contains(pickle_refusal("\x80\x09."s), "pickle protocol 9"));
  CHECK(contains(refusal("\x80\x04]."s, "torch-snapshot"), ""));
  CHECK(contains(refusal("\x80\x04}\x8c\x08segmentsK\x01s."s, "torch-snapshot"),
                 "expected a dict with a list 'segments'"));
}

TEST_CASE("import snapshot: the corpus has the reference counts; a cut file is refused") {
  const auto oracle_path = shared_path("corpus/oracle.json");
  if (!oracle_path) return;
  const auto oracle = nlohmann::json::parse(read_file(*oracle_path));
  int files = 0;
  for (const auto& file : oracle.items()) {
    const std::string& name = file.key();
    const nlohmann::json& want = file.value();
    if (!want.is_object() || !want.contains("devices")) continue;
    CAPTURE(name);
    const ImportResult r = swaplab::import_files({*shared_path("corpus/" + name)});
    CHECK(r.report.format == "torch-snapshot");
    CHECK(r.report.found_count("devices") == want["devices"].size());
    CHECK(r.report.found_count("segments") == want["segments"]);
    for (const auto& device : want["devices"]) {
      for (const auto& [action, count] : device["actions"].items())
        CHECK(r.report.found_count(action) == count);
      if (want["devices"].size() == 1) {
        CHECK(r.report.found_count("live_at_end") == device["live_at_end"]);
        CHECK(r.report.found_count("unmatched_free_completed") == device["unmatched_free_completed"]);
        CHECK(r.report.found_count("peak_from_zero_bytes") == device["peak_from_zero"]);
      }
    }
    if (r.trace) CHECK(swaplab::examine_trace(*r.trace).problems.empty());
    ++files;
  }
  CHECK(files == 7);
  check_truncations(read_file(*shared_path("corpus/torch_snapshot/tiny_segment_alloc.pickle")),
                    "torch-snapshot");
}

TEST_CASE("import snapshot: an event without an address is dropped and counted") {
  std::string bytes = kSnapshot;
  const std::string address = "sVaddr\nI1024\n";
  REQUIRE(contains(bytes, address));
  bytes.replace(bytes.find(address), address.size(), "sVaddr\nVtext\n");
  const auto r = import_text(bytes);
  CHECK(r.trace->ops.size() + 1 == import_text(kSnapshot).trace->ops.size());
  CHECK(note_count(r.report.dropped, "events without usable numbers") == 1);
}
