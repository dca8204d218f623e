// PYTORCH_CUDA_ALLOC_CONF and request logs: what is read, and what a wrong one says.
#include <doctest/doctest.h>

#include <sstream>
#include <string>

#include "sim/allocator/config.hpp"
#include "sim/allocator/replay.hpp"
#include "trace/error.hpp"

namespace {

using namespace swaplab;

std::string conf_error(const char* text) {
  try {
    require_supported(parse_alloc_conf(text));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "";
}

std::string log_error(const char* text) {
  std::istringstream in(text);
  try {
    parse_requests(in, "log");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("conf: defaults and every key") {
  const AllocatorConfig none = parse_alloc_conf("");
  CHECK_FALSE(none.expandable_segments);
  CHECK(none.max_split_size == kNoSplitLimit);
  CHECK_FALSE(none.rounds_up);
  CHECK(parse_alloc_conf("(default)").max_split_size == kNoSplitLimit);
  const AllocatorConfig all = parse_alloc_conf(
      "max_split_size_mb: 128, max_non_split_rounding_mb:32,garbage_collection_threshold:0.8,"
      "expandable_segments:False,roundup_power2_divisions:2,backend:native,"
      "release_lock_on_cudamalloc:True,pinned_num_register_threads:8");
  CHECK(all.max_split_size == std::uint64_t{128} << 20);
  CHECK(all.max_non_split_rounding == std::uint64_t{32} << 20);
  CHECK(all.garbage_collection_threshold == 0.8);
  CHECK(all.rounds_up);
  CHECK(all.without_effect.size() == 2);
}

TEST_CASE("conf: roundup list") {
  const AllocatorConfig list = parse_alloc_conf("roundup_power2_divisions:[256:1,512:2,1024:4]");
  CHECK(list.roundup_divisions[0] == 1);  // the first interval covers all below
  CHECK(list.roundup_divisions[8] == 1);
  CHECK(list.roundup_divisions[9] == 2);
  CHECK(list.roundup_divisions[10] == 4);
  CHECK(list.roundup_divisions[11] == 0);
  CHECK(
      parse_alloc_conf("roundup_power2_divisions:[256:1,>:8],expandable_segments:True").expandable_segments);
}

TEST_CASE("conf: errors name key, value and what was expected") {
  CHECK(contains(conf_error("expandable_segment:True"), "did you mean 'expandable_segments'"));
  CHECK(contains(conf_error("max_split_size_mb:20"), "above 20"));
  CHECK(contains(conf_error("max_split_size_mb:abc"), "'abc'"));
  CHECK(contains(conf_error("max_split_size_mb"), "expected key:value"));
  CHECK(contains(conf_error("expandable_segments:true"), "expected True or False"));
  CHECK(contains(conf_error("garbage_collection_threshold:1.0"), "between 0 and 1"));
  CHECK(contains(conf_error("garbage_collection_threshold:nan"), "between 0 and 1"));
  CHECK(contains(conf_error("roundup_power2_divisions:3"), "power of two"));
  CHECK(contains(conf_error("roundup_power2_divisions:[3:1]"), "interval '3'"));
  CHECK(contains(conf_error("roundup_power2_divisions:[256:1"), "closing ']'"));
  CHECK(contains(conf_error("backend:cudaMallocAsync"), "expected native"));
  CHECK(contains(conf_error("expandable_segments:True,max_split_size_mb:64"), "not supported"));
  CHECK(conf_error("expandable_segments:True") == "");
}

TEST_CASE("request log: errors name the line") {
  CHECK(contains(log_error("m 0 512 0\nx 1\n"), "log:2: unknown request 'x'"));
  CHECK(contains(log_error("m 0 512\n"), "log:1: expected a stream"));
  CHECK(contains(log_error("m 0 -5 0\n"), "expected a size"));
  CHECK(contains(log_error("m 0 512 64\n"), "below 64"));
  CHECK(contains(log_error("m 0 512 0\nf 0\nm 0 512 0\n"), "log:3: id 0 is allocated twice"));
  CHECK(contains(log_error("f 0 1\n"), "expected the end of the line"));
  CHECK(log_error("# comment\n\nm 7 0 3\nr 7 1\nf 7\nc 0 1\nz\ne\n") == "");
}

TEST_CASE("replay: the reference format, worked by hand") {
  std::istringstream in("m 0 1000 0\nf 0\nf 0\n");
  std::ostringstream out;
  ReplayOptions options;
  options.name = "tiny";
  options.capacity = 4194304;
  replay_requests(in, options, out);
  const std::string text = out.str();
  CHECK(contains(text,
                 "# allocator-oracle v1 tiny\n# req=-\n# conf=(default)\n"
                 "# capacity=4194304 fraction=0 full=1000000 every=1000000\n"
                 "0 m 0 1000 0 = 100000000000 +A:100000000000:2097152:0 | 1024 2097152 1024 2096128\n"
                 "1 f 0 = - | 0 2097152 0 0\n2 f 0 = skip | 0 2097152 0 0\n@ 3 ra="));
  CHECK(contains(text, "S 100000000000 2097152 s0 small: 2097152F\n"));
  CHECK(contains(text, "used_at_end=2097152 skipped=1 errors=0\nend 3\n"));
}
