#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/shared.hpp"
#include "trace/check.hpp"
#include "trace/error.hpp"
#include "trace/extend.hpp"
#include "trace/io.hpp"

namespace swaplab {
namespace {

const std::string kHeader = R"({"k":"hdr","v":1,"torch":"t","src":"synthetic","dev":"cuda:0","model":"m"})"
                            "\n";
const std::string kSig = R"({"k":"sig","id":0,"n":"aten.mm","flop":10,"rb":8,"wb":8,"view":0})"
                         "\n";

std::string error_of(const std::string& text) {
  try {
    parse_jsonl(text, "f");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string tiny(const std::string& alloc = R"({"k":"alloc","s":7,"b":100,"dev":"cuda:0","src":"ext"})") {
  return kHeader + alloc + "\n" + kSig +
         R"({"k":"op","i":0,"sig":0,"ph":"F","in":[7],"out":[],"wr":[7],"ns":5})"
         "\n";
}

TEST_CASE("a tiny trace is read column by column") {
  const Trace trace = parse_jsonl(tiny() + R"({"k":"end","ops":1,"storages":1,"peak":100,"live":100})"
                                           "\n",
                                  "f");
  CHECK(trace.ops.size() == 1);
  CHECK(trace.op_name(0) == "aten.mm");
  CHECK(trace.ops.device_time[0] == Nanos{5});
  CHECK(trace.inputs(0).size() == 1);
  CHECK(trace.written(0).size() == 1);
  CHECK(trace.storages.external[0] == 1);
  CHECK(examine_trace(trace).problems.empty());
}

TEST_CASE("sizes beyond 2^53 stay exact") {
  const std::string big = "9007199254740993";  // 2^53 + 1
  const Trace trace =
      parse_jsonl(tiny(R"({"k":"alloc","s":7,"b":)" + big + R"(,"dev":"cuda:0","src":"ext"})") +
                      R"({"k":"end","ops":1,"storages":1,"peak":)" + big + R"(,"live":)" + big + "}\n",
                  "f");
  CHECK(trace.peak_bytes.value == 9007199254740993);
}

TEST_CASE("bad input gets one clear error with file and line") {
  const std::string end = R"({"k":"end","ops":1,"storages":1,"peak":100,"live":100})"
                          "\n";
  const std::string alloc = R"({"k":"alloc","s":7,"b":100,"dev":"cuda:0","src":"ext"})"
                            "\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "empty"},
      {"{", "f:1: not valid JSON"},
      {"[]\n", "f:1: expected one JSON object"},
      {alloc, "f:1: the first record must be 'hdr'"},
      {R"({"k":"hdr","v":2})"
       "\n",
       "f:1: schema version 2 is not supported, expected 1"},
      {kHeader + kHeader, "f:2: a second 'hdr'"},
      {kHeader + alloc + alloc, "f:3: storage 7 is allocated twice"},
      {kHeader + R"({"k":"free","s":3})"
                 "\n",
       "f:2: 's' names storage 3"},
      {kHeader + alloc +
           R"({"k":"free","s":7})"
           "\n" +
           R"({"k":"free","s":7})"
           "\n",
       "f:4: "},
      {kHeader + R"({"k":"alloc","s":1,"b":-1,"src":"ext"})"
                 "\n",
       "f:2: 'b' must be at least 0"},
      {kHeader + R"({"k":"alloc","s":1,"b":1.5,"src":"ext"})"
                 "\n",
       "f:2: 'b' must be an integer"},
      {kHeader + R"({"k":"alloc","s":1,"b":99999999999999999999,"src":"ext"})"
                 "\n",
       "f:2: "},
      {kHeader + R"({"k":"alloc","s":1,"b":NaN,"src":"ext"})"
                 "\n",
       "f:2: not valid JSON: NaN is no JSON number; expected an integer"},
      {kHeader + R"({"k":"alloc","s":1,"b":18446744073709551616,"src":"ext"})"
                 "\n",
       "f:2: not valid JSON: a number is malformed or out of range; integers must fit 64 bits"},
      {kHeader + R"({"k":"alloc","s":1,"b":9223372036854775808,"src":"ext"})"
                 "\n",
       "f:2: 'b' must be an integer of at most 2^63-1, found 9223372036854775808"},
      {kHeader + R"({"k":"mem","p":"xyz","b":1})"
                 "\n",
       "f:2: 'p' must be a hexadecimal address below 2^64, found 'xyz'"},
      {kHeader + R"({"k":"mem","p":"10000000000000000","b":1})"
                 "\n",
       "f:2: 'p' must be a hexadecimal address below 2^64"},
      {kHeader + R"({"k":"mem","p":"-1","b":1})"
                 "\n",
       "f:2: 'p' must be a hexadecimal address below 2^64"},
      {kHeader + R"({"k":"mem","p":"1","b":1,"w":"x"})"
                 "\n",
       "f:2: 'w' of a 'mem'"},
      {kHeader + R"({"k":"mark","m":"iter_begin","it":0,"kind":"test"})"
                 "\n",
       "f:2: iteration kind 'test', expected \"train\" or \"val\""},
      {kHeader + "{\"k\":\"\xff\"}\n", "f:2: not valid UTF-8"},
      {kHeader + R"({"k":"alloc","s":1,"b":1,"src":"else"})"
                 "\n",
       "f:2: 'src'"},
      {kHeader + R"({"k":"op","i":0,"sig":0})"
                 "\n",
       "f:2: signature 0 is used before"},
      {kHeader + kSig + kSig, "f:3: signature id 0 is defined twice"},
      {kHeader + kSig +
           R"({"k":"op","i":4,"sig":0})"
           "\n",
       "f:3: operator number 4 out of order, expected 0"},
      {kHeader + kSig +
           R"({"k":"op","i":0,"sig":0,"st":64})"
           "\n",
       "f:3: stream 64 is out of range"},
      {tiny(), "truncated: no 'end' record after 1 operators and 1 storages"},
      {tiny() + R"({"k":"end","ops":2,"storages":1,"peak":100,"live":100})"
                "\n",
       "says ops = 2, replaying the file gives 1"},
      {tiny() + R"({"k":"end","ops":1,"storages":1,"peak":1,"live":100})"
                "\n",
       "says peak = 1"},
      {tiny() + end + alloc, "f:6: nothing may follow the 'end' record"},
      {kHeader + R"({"k":"end","ops":0,"storages":0,"peak":0,"live":0})"
                 "\n",
       "f:2: "},
  };
  for (const auto& wrong : cases) {
    const auto& [text, expected] = wrong;
    CAPTURE(wrong.first);
    const std::string message = error_of(text);
    CAPTURE(message);
    CHECK(message.find(expected) != std::string::npos);
  }
}

TEST_CASE("header extras keep keys with quotes and backslashes") {
  const std::string extra = R"({"a\"b\\c":{"d\n":[1,2]},"e":"\u0001"})";
  const std::string header =
      R"({"k":"hdr","v":1,"torch":"","src":"","model":"","dev":"",)" + extra.substr(1) + "\n";
  const std::string rest = tiny().substr(kHeader.size()) +
                           R"({"k":"end","ops":1,"storages":1,"peak":100,"live":100})"
                           "\n";
  const Trace trace = parse_jsonl(header + rest, "f");
  CHECK(trace.header.extra_json == extra);
  CHECK(parse_jsonl(jsonl_text(trace), "g").header.extra_json == extra);
}

TEST_CASE("a line without end is refused before it fills the memory") {
  std::string text = kHeader + R"({"k":"saved","s":[)";
  text.append((std::size_t{64} << 20) + 10, ' ');
  CHECK(error_of(text) == "f:2: the line is longer than 64 MiB; expected one record per line");
  const auto path =
      (std::filesystem::temp_directory_path() / ("swaplab-long-" + std::to_string(::getpid()))).string();
  {
    std::FILE* file = std::fopen(path.c_str(), "wb");
    REQUIRE(file != nullptr);
    std::fwrite(text.data(), 1, text.size(), file);
    std::fclose(file);
  }
  CHECK_THROWS_WITH_AS(read_trace(path), doctest::Contains(":2: the line is longer than 64 MiB"), Error);
  std::filesystem::remove(path);
  std::string wide =
      tiny(R"({"k":"alloc","s":7,"b":100,"dev":"cuda:0","src":"ext"})" + std::string(3 << 20, ' '));
  wide += R"({"k":"end","ops":1,"storages":1,"peak":100,"live":100})";
  CHECK(parse_jsonl(wide, "f").ops.size() == 1);
}

TEST_CASE("a pipe is refused with what was expected") {
  const auto path =
      (std::filesystem::temp_directory_path() / ("swaplab-pipe-" + std::to_string(::getpid()))).string();
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK_THROWS_WITH_AS(read_trace(path), doctest::Contains("is not a regular file"), Error);
  std::filesystem::remove(path);
}

TEST_CASE("sparse ids stay known when dense ones follow") {
  const auto alloc = [](int id) {
    return R"({"k":"alloc","s":)" + std::to_string(id) + R"(,"b":8,"dev":"cuda:0","src":"ext"})" + "\n";
  };
  const std::string use = R"({"k":"op","i":0,"sig":0,"in":[5000,4000],"out":[],"wr":[]})"
                          "\n";
  const std::string end = R"({"k":"end","ops":1,"storages":2,"peak":16,"live":16})"
                          "\n";
  CHECK(parse_jsonl(kHeader + alloc(5000) + alloc(4000) + kSig + use + end, "f").storages.size() == 2);
  CHECK(error_of(kHeader + alloc(5000) + alloc(4000) + alloc(5000)).find("allocated twice") !=
        std::string::npos);
}

TEST_CASE("unknown keys and kinds warn once") {
  ReadReport report;
  const std::string odd = R"({"k":"alloc","s":7,"b":100,"dev":"cuda:0","src":"ext","color":1})";
  parse_jsonl(tiny(odd) + R"({"k":"novel"})"
                          "\n"
                          R"({"k":"novel"})"
                          "\n"
                          R"({"k":"end","ops":1,"storages":1,"peak":100,"live":100})"
                          "\n",
              "f", &report);
  REQUIRE(report.warnings.size() == 2);
  CHECK(report.warnings[0].find("unknown key 'color'") != std::string::npos);
  CHECK(report.warnings[1].find("unknown kind 'novel'") != std::string::npos);
}

TEST_CASE("the independent recordings replay to their own end records") {
  struct Row {
    const char* file;
    std::uint64_t ops, storages;
    std::int64_t peak_mib, live_mib;
  };
  for (const Row& row :
       {Row{"gpt_small", 4086, 1409, 158, 80}, Row{"gpt_small_checkpoint", 4914, 1745, 112, 80},
        Row{"resnet50_fake_b256", 3025, 1709, 21371, 292}}) {
    const auto path = test::shared_path(std::string("recorded/") + row.file + ".jsonl.gz");
    if (!path) return;
    const TraceReport report = examine_trace(read_trace(*path));
    CHECK(report.problems.empty());
    CHECK(report.operators == row.ops);
    CHECK(report.storages == row.storages);
    CHECK((report.peak_bytes.value >> 20) == row.peak_mib);
    CHECK((report.live_bytes.value >> 20) == row.live_mib);
  }
}

const std::vector<std::string> kBundled = {"gpt_small", "gpt_varied", "gpt2_medium", "resnet50_b256", "moe"};

TEST_CASE("writing and reading again changes nothing, in any compression") {
  const auto folder = std::filesystem::temp_directory_path() / ("swaplab-test-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  for (const std::string& name : kBundled) {
    const Trace trace = read_trace(test::source_path("configs/traces/" + name + ".jsonl.gz"));
    for (const char* extension : {".jsonl", ".jsonl.gz", ".jsonl.zst"}) {
      const std::string path = (folder / (name + extension)).string();
      write_trace(trace, path);
      const Trace again = read_trace(path);
      CHECK(again.ops.size() == trace.ops.size());
      CHECK(again.peak_bytes == trace.peak_bytes);
      CHECK(trace_hash(again) == trace_hash(trace));
      const std::string second = (folder / "again.jsonl").string();
      write_trace(again, second);
      CHECK(trace_hash(read_trace(second)) == trace_hash(again));
    }
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("a truncated gzip is refused and an unwritable path leaves nothing") {
  const auto folder =
      std::filesystem::temp_directory_path() / ("swaplab-test-t-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const std::string whole = test::source_path("configs/traces/gpt_small.jsonl.gz");
  const std::string cut = (folder / "cut.jsonl.gz").string();
  std::filesystem::copy_file(whole, cut);
  std::filesystem::resize_file(cut, std::filesystem::file_size(whole) / 2);
  CHECK_THROWS_WITH_AS(read_trace(cut), doctest::Contains("gzip stream is damaged or ends early"), Error);
  CHECK_THROWS_AS(write_trace(read_trace(whole), (folder / "no/such/x.jsonl").string()), Error);
  CHECK_THROWS_AS(read_trace(folder.string()), Error);
  CHECK_THROWS_AS(read_trace((folder / "absent").string()), Error);
  std::filesystem::remove_all(folder);
}

TEST_CASE("continued traces stay consistent and steady") {
  for (const std::string& name : kBundled) {
    CAPTURE(name);
    const Trace trace = read_trace(test::source_path("configs/traces/" + name + ".jsonl.gz"));
    const auto recorded = static_cast<std::uint32_t>(trace.iterations.size());
    for (const std::uint32_t n : {recorded - 1, recorded, recorded + 1, recorded + 7}) {
      const Trace longer = extend_iterations(trace, n);
      CHECK(longer.iterations.size() == n);
      const TraceReport report = examine_trace(longer);
      CHECK(report.problems.empty());
      for (std::size_t i = recorded + 1; i < report.iterations.size(); ++i) {
        CHECK(report.iterations[i].live_at_end == report.iterations[i - 1].live_at_end);
        CHECK(report.iterations[i].iteration.end_op - report.iterations[i].iteration.first_op ==
              report.iterations[recorded].iteration.end_op - report.iterations[recorded].iteration.first_op);
      }
    }
  }
}

}  // namespace
}  // namespace swaplab
