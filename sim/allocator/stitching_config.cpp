#include "sim/allocator/stitching_config.hpp"

#include <algorithm>
#include <charconv>
#include <string>
#include <system_error>
#include <vector>

#include "trace/error.hpp"

namespace swaplab {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

struct Key {
  const char* name;
  std::uint64_t least, most;
  const char* unit;
  void (*set)(StitchingConfig&, std::uint64_t);
};

constexpr Key kKeys[] = {
    {"vmmDefragment", 0, 1, "0 or 1", [](StitchingConfig& c, std::uint64_t v) { c.stitch = v != 0; }},
    {"fragLimit", 0, std::uint64_t{1} << 40, "bytes up to 1 TiB",
     [](StitchingConfig& c, std::uint64_t v) { c.frag_limit = v; }},
    {"defragLevel", 0, 1, "0 or 1",
     [](StitchingConfig& c, std::uint64_t v) { c.defrag_level = static_cast<std::uint32_t>(v); }},
    {"reuseLimit", 1, 1'000'000, "a factor from 1 to 1000000",
     [](StitchingConfig& c, std::uint64_t v) { c.reuse_limit = v; }},
    {"autoGC", 1, 1'000'000, "GiB from 1 to 1000000",
     [](StitchingConfig& c, std::uint64_t v) { c.auto_gc = v * kGiB; }},
    {"gc_thresh", 1, 1'000'000, "GiB from 1 to 1000000",
     [](StitchingConfig& c, std::uint64_t v) { c.gc_thresh = v * kGiB; }},
};

[[noreturn]] void fail(const std::string& message) {
  throw Error(ErrorKind::usage, "settings of the stitching allocator: " + message);
}

}  // namespace

StitchingConfig parse_stitching_conf(std::string_view text) {
  StitchingConfig config;
  if (text.empty() || text == "default") return config;
  std::vector<std::string> given;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const std::size_t colon = part.find(':');
    const std::string name(part.substr(0, colon));
    const Key* key = nullptr;
    std::vector<std::string> names;
    for (const Key& candidate : kKeys) {
      names.emplace_back(candidate.name);
      if (name == candidate.name) key = &candidate;
    }
    if (std::find(given.begin(), given.end(), name) != given.end()) fail("'" + name + "' is given twice");
    given.push_back(name);
    if (key == nullptr) fail("unknown key '" + name + "'" + did_you_mean(name, names));
    const std::string_view value = colon == std::string_view::npos ? "" : part.substr(colon + 1);
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (value.empty() || error != std::errc{} || end != value.data() + value.size() || number < key->least ||
        number > key->most) {
      fail("'" + name + "' is '" + std::string(value) + "'; expected " + key->unit);
    }
    key->set(config, number);
    if (comma == std::string_view::npos) return config;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace swaplab
