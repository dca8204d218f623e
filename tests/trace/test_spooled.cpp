// Traces built in temporary files: the same rules, the same bytes, and little of them resident.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/support/random_trace.hpp"
#include "trace/builder.hpp"
#include "trace/check.hpp"
#include "trace/error.hpp"
#include "trace/io.hpp"

namespace swaplab {
namespace {

struct Folder {
  std::string path =
      (std::filesystem::temp_directory_path() / ("swaplab-spool-" + std::to_string(::getpid()))).string();
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
};

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// `ops` operators, each with a new activation that lives for eight operators and a parameter.
void build(TraceBuilder& b, std::uint32_t ops) {
  const SigId sig = b.add_signature({"aten.add", "{}", 1, Bytes{4}, Bytes{4}, Bytes{0}, false});
  const StorageId parameter = b.alloc(Bytes{1 << 20}, "cuda:0", true);
  std::vector<StorageId> window;
  b.mark(MarkKind::iter_begin, "train", 0, Nanos{-1});
  for (std::uint32_t i = 0; i < ops; ++i) {
    if (window.size() == 8) {
      b.free(window.front());
      window.erase(window.begin());
    }
    const std::array in{window.empty() ? parameter : window.back(), parameter};
    const std::array out{b.alloc(Bytes{4096}, "cuda:0", false)};
    window.push_back(out[0]);
    b.op({sig, Phase::forward, 0, SyncKind::none, Nanos{i % 1000}, Nanos{-1}, Nanos{-1}, in, out, {}});
  }
  b.mark(MarkKind::iter_end, "", 0, Nanos{-1});
}

TEST_CASE("a spooled builder makes the same trace and the same file, and leaves no other") {
  const Folder folder;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    test::RandomTraceOptions options;
    const Trace plain = test::random_trace(seed, options);
    options.spool_folder = folder.path.c_str();
    const Trace spooled = test::random_trace(seed, options);
    CHECK(trace_hash(spooled) == trace_hash(plain));
    CHECK(examine_trace(spooled).problems.empty());
    CHECK(jsonl_text(spooled) == jsonl_text(plain));
  }
  CHECK(std::filesystem::is_empty(folder.path));
  TraceBuilder heap, spool = TraceBuilder::spooled(folder.path);
  build(heap, 60000);
  build(spool, 60000);
  write_trace(heap.finish(), folder.path + "/a.swt");
  spool.finish_swt(folder.path + "/b.swt");
  CHECK(bytes_of(folder.path + "/a.swt") == bytes_of(folder.path + "/b.swt"));
  // The builder is empty and still spools.
  build(spool, 10);
  spool.finish_swt(folder.path + "/c.swt");
  CHECK(read_trace(folder.path + "/c.swt").ops.size() == 10);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 3);
}

TEST_CASE("a spooled build of a trace larger than its share stays small") {
  const Folder folder;
  const std::string path = folder.path + "/big.swt";
  rusage before{};
  ::getrusage(RUSAGE_SELF, &before);
  TraceBuilder b = TraceBuilder::spooled(folder.path);
  build(b, 1500000);
  b.finish_swt(path);
  rusage after{};
  ::getrusage(RUSAGE_SELF, &after);
  const auto file_kib = static_cast<long>(std::filesystem::file_size(path) >> 10);
  CAPTURE(file_kib);
  CHECK(file_kib > 120 * 1024);
  const long grown_kib = after.ru_maxrss - before.ru_maxrss;
  CAPTURE(grown_kib);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their shadow memory counts as ours
  CHECK(grown_kib < 80 * 1024);
#endif
}

TEST_CASE("a folder that does not take files is named") {
  CHECK_THROWS_WITH_AS(TraceBuilder::spooled("/no/such/folder"),
                       doctest::Contains("/no/such/folder: cannot create a temporary file"), Error);
}

}  // namespace
}  // namespace swaplab
