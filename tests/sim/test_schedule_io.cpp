#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "sim/schedule_io.hpp"
#include "tests/sim/schedule_cases.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

std::string error_of(const std::string& text) {
  try {
    parse_schedule(text, "s.jsonl");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
  return "accepted";
}

Schedule rich_schedule() {
  Schedule s = test::worked_schedule(test::worked_trace());
  s.trace_path = "a \"quoted\" path";
  s.trace_hash = std::numeric_limits<std::uint64_t>::max();
  s.times = TimeSource::model;
  s.entries[2].bytes = Bytes{9007199254740993};  // 2^53 + 1
  s.entries[2].end = Nanos{std::numeric_limits<std::int64_t>::max()};
  s.entries[1].stream = 65535;
  s.result.outcome = Outcome::out_of_memory;
  s.result.explanation = "line one\nline two";
  s.result.smallest_budget = Bytes{9007199254740993};
  s.result.iterations[1].kind = IterationKind::validation;
  s.result.policy_metrics = {{"depth", "count", "how deep", -5}};
  return s;
}

class Folder {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() / ("swaplab_schedule_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator()));
  }

 private:
  std::filesystem::path path_;
};

TEST_CASE("schedule files: text survives the round trip, integers exact") {
  const Schedule s = rich_schedule();
  const std::string text = schedule_text(s);
  const Schedule again = parse_schedule(text, "s.jsonl");
  CHECK(schedule_text(again) == text);
  CHECK(again.trace_path == s.trace_path);
  CHECK(again.trace_hash == s.trace_hash);
  CHECK(again.times == TimeSource::model);
  CHECK(again.machine_json == s.machine_json);
  CHECK(again.initial_host == s.initial_host);
  REQUIRE(again.entries.size() == s.entries.size());
  for (std::size_t i = 0; i < s.entries.size(); ++i) {
    const ScheduleEntry &a = again.entries[i], &b = s.entries[i];
    CHECK(a.kind == b.kind);
    CHECK(a.stream == b.stream);
    CHECK(a.index == b.index);
    CHECK(a.bytes == b.bytes);
    CHECK(a.start == b.start);
    CHECK(a.end == b.end);
  }
  CHECK(again.result.outcome == Outcome::out_of_memory);
  CHECK(again.result.explanation == s.result.explanation);
  CHECK(again.result.smallest_budget == Bytes{9007199254740993});
  REQUIRE(again.result.iterations.size() == 2);
  CHECK(again.result.iterations[1].kind == IterationKind::validation);
  CHECK(again.result.iterations[1].stalls == s.result.iterations[1].stalls);
  CHECK(again.result.policy_metrics.at(0).value == -5);
}

TEST_CASE("schedule files: plain, gzip and zstd, equal bytes each time") {
  const Folder folder;
  const Schedule s = rich_schedule();
  for (const char* name : {"s.jsonl", "s.jsonl.gz", "s.jsonl.zst"}) {
    write_schedule(s, folder.file(name));
    CHECK(schedule_text(read_schedule(folder.file(name))) == schedule_text(s));
    const std::string twin = folder.file(std::string("twin_") + name);
    write_schedule(s, twin);
    std::ifstream a(folder.file(name), std::ios::binary), b(twin, std::ios::binary);
    CHECK(std::string(std::istreambuf_iterator<char>(a), {}) ==
          std::string(std::istreambuf_iterator<char>(b), {}));
  }
  CHECK(folder.files() == 6);  // no temporary file left

  // A compressed file that was cut.
  for (const char* name : {"s.jsonl.gz", "s.jsonl.zst"}) {
    std::filesystem::resize_file(folder.file(name), std::filesystem::file_size(folder.file(name)) / 2);
    CHECK_THROWS_AS(read_schedule(folder.file(name)), Error);
  }
  CHECK_THROWS_AS(read_schedule(folder.file("absent")), Error);
  CHECK_THROWS_AS(write_schedule(s, folder.file("no/such/folder/s.jsonl")), Error);
}

TEST_CASE("schedule files: one error that says where and what was expected") {
  const std::string text = schedule_text(test::worked_schedule(test::worked_trace()));
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const std::size_t at = changed.find(from);
    REQUIRE(at != std::string::npos);
    return changed.replace(at, from.size(), to);
  };
  const auto expect = [](const std::string& broken, const std::string& part) {
    const std::string message = error_of(broken);
    CHECK_MESSAGE(message.find(part) != std::string::npos, message, " lacks ", part);
    CHECK(message.rfind("s.jsonl:", 0) == 0);
  };
  expect("", "1: empty file");
  expect("PK\x03\x04 whatever", "1: not a schedule file: the first line is not JSON");
  expect("{\"k\":\"header\"}\n", "1: not a schedule file: expected a header");
  expect(replaced("schedule@1", "schedule@2"), "1: schema 'swaplab/schedule@2' is not supported");
  expect(replaced("\"budget_bytes\":300,", ""), "1: header: field 'budget_bytes' is missing");
  expect(replaced("\"budget_bytes\":300", "\"budget_bytes\":300.5"), "expected an integer");
  expect(replaced("\"budget_bytes\":300", "\"budget_bytes\":9223372036854775808"), "expected an integer");
  expect(replaced("\"times\":\"trace\"", "\"times\":\"clock\""),
         "header.times: expected one of 'trace', 'model'");
  expect(replaced("\"policy\":", "\"extra\":1,\"policy\":"), "header: has unknown fields");
  expect(replaced("[\"acquire\",2", "[\"acquires\",2"), "2: entry kind 'acquires' is unknown");
  expect(replaced("[\"acquire\",2,", "[\"acquire\","), "2: 'acquire' entry: expected 4 elements, found 3");
  expect(replaced("[\"acquire\",2", "[\"acquire\",-1"),
         "2: entry id: expected an integer from 0 to 4294967295");
  expect(replaced("[\"op\",0,0", "[\"op\",0,65536"), "entry stream: expected an integer from 0 to 65535");
  expect(replaced("[\"op\",0,0", "[\"op\",0,NaN"), "3: expected one JSON value");
  expect(replaced("[\"op\",0,0", "[\"op\",0,1e3"), "3: entry stream: expected an integer");
  expect(replaced("\"outcome\":\"ok\"", "\"outcome\":\"fine\""),
         "result.outcome: expected one of 'ok', 'infeasible'");
  expect(replaced("{\"end\":20", "{\"end\":19"), "the end line counts 19 entries, the file has 20");
  expect(text + "[\"op\",6,0,0,0]\n", "nothing may follow the end line");
  // Cut after any line, and within one.
  for (std::size_t at = text.find('\n') + 1; at < text.size(); at = text.find('\n', at) + 1) {
    expect(text.substr(0, at), "truncated schedule: no end line");
    expect(text.substr(0, at + 4), "truncated schedule: the line is not complete");
  }
}

}  // namespace
}  // namespace swaplab
