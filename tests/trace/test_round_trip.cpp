// Random traces through every format and through extend_iterations.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>

#include "tests/support/random_trace.hpp"
#include "trace/check.hpp"
#include "trace/error.hpp"
#include "trace/extend.hpp"
#include "trace/io.hpp"

namespace swaplab {
namespace {

constexpr std::uint64_t kSeeds = 300;

struct Folder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("swaplab-round-" + std::to_string(::getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const std::string& name) const { return (path / name).string(); }
};

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST_CASE("random traces are consistent and the same for the same seed") {
  std::uint64_t ops = 0, storages = 0, resizes = 0, saved = 0, memory = 0, marks = 0, validation = 0,
                skipped = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    CAPTURE(seed);
    const Trace trace = test::random_trace(seed);
    CHECK(examine_trace(trace).problems.empty());
    CHECK(trace_hash(trace) == trace_hash(test::random_trace(seed)));
    ops += trace.ops.size();
    storages += trace.storages.size();
    resizes += trace.resizes.size();
    saved += trace.saved.size();
    memory += trace.memory_events.size();
    marks += trace.marks.size();
    for (const Iteration& it : trace.iterations) {
      validation += it.kind == IterationKind::validation ? 1 : 0;
      skipped += it.step_skipped ? 1 : 0;
    }
  }
  // The generator really makes what it promises.
  CHECK(ops > 5000);
  CHECK(storages > 5000);
  for (const std::uint64_t count : {resizes, saved, memory, validation, skipped}) CHECK(count > 50);
  CHECK(marks > 1000);
  CHECK(trace_hash(test::random_trace(1)) != trace_hash(test::random_trace(2)));
  CHECK(trace_hash(test::random_trace(42)) == 16595715726762555217u);  // the same with every compiler
}

TEST_CASE("JSON lines: reading what was written gives the same trace and the same text") {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    CAPTURE(seed);
    const Trace trace = test::random_trace(seed);
    const std::string text = jsonl_text(trace);
    ReadReport report;
    const Trace again = parse_jsonl(text, "f", &report);
    CHECK(trace_hash(again) == trace_hash(trace));
    CHECK(jsonl_text(again) == text);
    CHECK(again.iterations.size() == trace.iterations.size());
    CHECK(again.header.extra_json == trace.header.extra_json);
    for (const std::string& warning : report.warnings) {
      const bool expected = warning.find("unknown mark") != std::string::npos;
      CHECK_MESSAGE(expected, warning);
    }
  }
}

TEST_CASE(".swt: reading what was written gives the same trace, and equal traces give equal bytes") {
  const Folder folder;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    CAPTURE(seed);
    const Trace trace = test::random_trace(seed);
    write_trace(trace, folder.file("a.swt"));
    ReadReport report;
    const Trace again = read_trace(folder.file("a.swt"), &report);
    CHECK(report.format == "swt");
    CHECK(report.has_end_record);
    CHECK(trace_hash(again) == trace_hash(trace));
    CHECK(jsonl_text(again) == jsonl_text(trace));
    CHECK(examine_trace(again).problems.empty());
    CHECK(again.iterations.size() == trace.iterations.size());
    write_trace(again, folder.file("b.swt"));
    CHECK(bytes_of(folder.file("a.swt")) == bytes_of(folder.file("b.swt")));
  }
}

TEST_CASE("a mapped trace outlives its file and its first owner") {
  const Folder folder;
  const Trace trace = test::random_trace(7);
  write_trace(trace, folder.file("a.swt"));
  Column<StorageId> kept;
  {
    const Trace mapped = read_trace(folder.file("a.swt"));
    kept = mapped.ops.in;
    std::filesystem::remove(folder.file("a.swt"));
    CHECK(trace_hash(mapped) == trace_hash(trace));
  }
  REQUIRE(kept.size() == trace.ops.in.size());
  for (std::size_t i = 0; i < kept.size(); ++i) CHECK(kept[i] == trace.ops.in[i]);
}

TEST_CASE("formats agree: JSON lines to .swt to JSON lines") {
  const Folder folder;
  for (const char* compression : {".jsonl", ".jsonl.gz", ".jsonl.zst"}) {
    const Trace trace = test::random_trace(11);
    const std::string text = folder.file(std::string("a") + compression);
    write_trace(trace, text);
    write_trace(read_trace(text), folder.file("b.swt"));
    write_trace(read_trace(folder.file("b.swt")), folder.file(std::string("c") + compression));
    CHECK(bytes_of(text) == bytes_of(folder.file(std::string("c") + compression)));
    CHECK(trace_hash(read_trace(text)) == trace_hash(trace));
  }
}

TEST_CASE("continued random traces stay valid, whenever they can be continued") {
  std::uint64_t continued = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    CAPTURE(seed);
    const Trace trace = test::random_trace(seed);
    Trace longer;
    try {
      longer = extend_iterations(trace, 6);
    } catch (const Error& error) {
      const std::string message = error.what();
      CAPTURE(message);
      CHECK(message.find("cannot be continued") != std::string::npos);
      continue;
    }
    ++continued;
    CHECK(longer.iterations.size() == 6);
    CHECK(examine_trace(longer).problems.empty());
    CHECK(jsonl_text(parse_jsonl(jsonl_text(longer), "f")) == jsonl_text(longer));
  }
  CHECK(continued > 20);
}

TEST_CASE("each repeated iteration equals its template") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    test::RandomTraceOptions options;
    options.steady = true;
    options.iterations = 3;
    const Trace trace = test::random_trace(seed, options);
    const Trace longer = extend_iterations(trace, 9);
    const TraceReport report = examine_trace(longer);
    CHECK(report.problems.empty());
    REQUIRE(longer.iterations.size() == 9);
    const Iteration& model = longer.iterations[2];
    for (std::size_t i = 3; i < 9; ++i) {
      const Iteration& it = longer.iterations[i];
      REQUIRE(it.end_op - it.first_op == model.end_op - model.first_op);
      CHECK(report.iterations[i].peak_bytes == report.iterations[2].peak_bytes);
      CHECK(report.iterations[i].live_at_end == report.iterations[2].live_at_end);
      CHECK(report.iterations[i].allocations == report.iterations[2].allocations);
      for (std::uint32_t op = 0; op < it.end_op - it.first_op; ++op) {
        const std::uint32_t a = it.first_op + op, b = model.first_op + op;
        CHECK(longer.ops.signature[a] == longer.ops.signature[b]);
        CHECK(longer.ops.phase[a] == longer.ops.phase[b]);
        REQUIRE(longer.inputs(a).size() == longer.inputs(b).size());
        REQUIRE(longer.outputs(a).size() == longer.outputs(b).size());
        for (std::size_t k = 0; k < longer.inputs(a).size(); ++k) {
          CHECK(longer.storages.bytes[index(longer.inputs(a)[k])] ==
                longer.storages.bytes[index(longer.inputs(b)[k])]);
        }
        CHECK(longer.gap(a).size() == longer.gap(b).size());
      }
    }
  }
}

TEST_CASE("an output never turns a device or pipe into a file, and a link keeps pointing where it did") {
  const Folder folder;
  const Trace trace = test::random_trace(1);
  const std::string pipe = folder.file("pipe.swt"), link = folder.file("link.swt"),
                    target = folder.file("target.swt");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THROWS_WITH_AS(write_trace(trace, pipe), doctest::Contains("is not a regular file"), Error);
  CHECK(std::filesystem::is_fifo(pipe));
  write_trace(test::random_trace(2), target);
  std::filesystem::create_symlink("target.swt", link);
  write_trace(trace, link);
  CHECK(std::filesystem::is_symlink(link));
  CHECK(trace_hash(read_trace(target)) == trace_hash(trace));
}

}  // namespace
}  // namespace swaplab
