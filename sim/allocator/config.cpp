#include "sim/allocator/config.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>

#include "trace/error.hpp"

namespace swaplab {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// Keys that are accepted and change nothing on the device side of one host thread.
const std::vector<std::string>& keys_without_effect() {
  static const std::vector<std::string> keys = {
      "pinned_num_register_threads", "pinned_use_background_threads", "pinned_use_cuda_host_register",
      "release_lock_on_cudamalloc"};
  return keys;
}

std::vector<std::string> known_keys() {
  std::vector<std::string> keys = {
      "backend",           "expandable_segments",       "garbage_collection_threshold",
      "max_split_size_mb", "max_non_split_rounding_mb", "roundup_power2_divisions"};
  keys.insert(keys.end(), keys_without_effect().begin(), keys_without_effect().end());
  return keys;
}

[[noreturn]] void fail(const std::string& message) {
  throw Error(ErrorKind::usage, "PYTORCH_CUDA_ALLOC_CONF: " + message);
}

std::string quoted(std::string_view text) {
  return "'" + std::string(text) + "'";
}

template <class Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::uint64_t megabytes(const std::string& key, std::string_view value) {
  const auto count = number<std::uint64_t>(value);
  // PyTorch reads an int here.
  if (!count || *count <= kLargeBuffer / kMiB || *count > std::numeric_limits<std::int32_t>::max()) {
    fail("'" + key + "' is " + quoted(value) + "; expected a whole number of MiB above " +
         std::to_string(kLargeBuffer / kMiB));
  }
  return *count * kMiB;
}

bool boolean(const std::string& key, std::string_view value) {
  if (value == "True") return true;
  if (value == "False") return false;
  fail("'" + key + "' is " + quoted(value) + "; expected True or False");
}

std::uint64_t divisions(std::string_view value, bool zero_allowed) {
  const auto count = number<std::uint32_t>(value);
  if (!count || (*count == 0 && !zero_allowed) || (*count != 0 && !std::has_single_bit(*count))) {
    fail("'roundup_power2_divisions' has " + quoted(value) + " divisions; expected a power of two" +
         (zero_allowed ? " or 0" : ""));
  }
  return *count;
}

// "[256:1,512:2,>:8]": divisions by size in MiB. The first interval also covers all smaller sizes, and
// '>' covers the last listed interval and everything above.
void parse_division_list(std::string_view list, AllocatorConfig& config) {
  if (list.empty() || list.back() != ']') {
    fail("'roundup_power2_divisions' is " + quoted(list) + "; expected a closing ']'");
  }
  list = list.substr(1, list.size() - 2);
  auto& by_size = config.roundup_divisions;
  std::size_t last = 0;
  bool first = true;
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    const std::string_view entry = list.substr(0, comma);
    list = comma == std::string_view::npos ? std::string_view{} : list.substr(comma + 1);
    const std::size_t colon = entry.find(':');
    if (colon == std::string_view::npos) {
      fail("'roundup_power2_divisions' has " + quoted(entry) + "; expected size:divisions");
    }
    const std::string_view interval = entry.substr(0, colon);
    const std::uint64_t value = divisions(entry.substr(colon + 1), true);
    if (interval == ">") {
      std::fill(by_size.begin() + static_cast<std::ptrdiff_t>(last), by_size.end(), value);
      continue;
    }
    const auto size = number<std::uint64_t>(interval);
    if (!size || !std::has_single_bit(*size)) {
      fail("'roundup_power2_divisions' has the interval " + quoted(interval) +
           "; expected a power of two in MiB or '>'");
    }
    last = std::min<std::size_t>(static_cast<std::size_t>(std::countr_zero(*size)), by_size.size() - 1);
    if (first) std::fill(by_size.begin(), by_size.begin() + static_cast<std::ptrdiff_t>(last), value);
    by_size[last] = value;
    first = false;
  }
}

void apply(const std::string& key, std::string_view value, AllocatorConfig& config) {
  if (key == "max_split_size_mb") {
    config.max_split_size = megabytes(key, value);
  } else if (key == "max_non_split_rounding_mb") {
    config.max_non_split_rounding = megabytes(key, value);
  } else if (key == "garbage_collection_threshold") {
    const auto share = number<double>(value);
    if (!share || !(*share > 0 && *share < 1)) {
      fail("'garbage_collection_threshold' is " + quoted(value) + "; expected a number between 0 and 1");
    }
    config.garbage_collection_threshold = *share;
  } else if (key == "expandable_segments") {
    config.expandable_segments = boolean(key, value);
  } else if (key == "roundup_power2_divisions") {
    if (!value.empty() && value.front() == '[') {
      parse_division_list(value, config);
    } else {
      config.roundup_divisions.fill(divisions(value, false));
    }
  } else if (key == "backend") {
    if (value == "cudaMallocAsync") {
      fail(
          "'backend' is 'cudaMallocAsync', which has none of the caching allocator's rules; expected native");
    }
    if (value != "native") fail("'backend' is " + quoted(value) + "; expected native");
  } else if (std::find(keys_without_effect().begin(), keys_without_effect().end(), key) !=
             keys_without_effect().end()) {
    if (key == "pinned_num_register_threads") {
      const auto count = number<std::uint32_t>(value);
      if (!count || !std::has_single_bit(*count)) {
        fail("'" + key + "' is " + quoted(value) + "; expected a power of two");
      }
    } else {
      boolean(key, value);
    }
    config.without_effect.push_back(key);
  } else {
    fail("unknown option " + quoted(key) + did_you_mean(key, known_keys()));
  }
}

}  // namespace

std::uint64_t AllocatorConfig::round_to_division(std::uint64_t size) const {
  const int interval = std::clamp(static_cast<int>(std::bit_width(size)) - 1 - 20, 0, 15);
  const std::uint64_t count = roundup_divisions[static_cast<std::size_t>(interval)];
  if (count > 1 && size > kMinBlockSize * count) {
    // `count` equal steps between two powers of two; at least 512 bytes each, as size > 512 * count.
    const std::uint64_t step = std::bit_floor(size) / count;
    return (size + step - 1) / step * step;
  }
  return (size + kMinBlockSize - 1) & ~(kMinBlockSize - 1);
}

AllocatorConfig parse_alloc_conf(std::string_view given) {
  AllocatorConfig config;
  std::string text(given);
  std::erase(text, ' ');
  if (text == "(default)") return config;
  std::vector<std::string> keys;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t colon = text.find(':', at);
    const std::size_t comma = text.find(',', at);
    if (colon == std::string::npos || comma < colon) {
      const std::string key = text.substr(at, std::min(comma, text.size()) - at);
      const std::string hint = did_you_mean(key, known_keys());
      fail("expected key:value, got " + quoted(key) + hint);
    }
    const std::string key = text.substr(at, colon - at);
    if (std::find(keys.begin(), keys.end(), key) != keys.end())
      fail("key " + quoted(key) + " is given twice");
    keys.push_back(key);
    std::size_t end = colon + 1;  // a value ends at the next comma outside brackets
    for (bool in_list = false; end < text.size() && (in_list || text[end] != ','); ++end) {
      if (text[end] == '[') in_list = true;
      if (text[end] == ']') in_list = false;
    }
    apply(key, std::string_view(text).substr(colon + 1, end - colon - 1), config);
    at = end + 1;
  }
  config.rounds_up = std::any_of(config.roundup_divisions.begin(), config.roundup_divisions.end(),
                                 [](std::uint64_t count) { return count > 1; });
  return config;
}

void require_supported(const AllocatorConfig& config) {
  if (config.expandable_segments && config.max_split_size != kNoSplitLimit) {
    fail(
        "expandable_segments:True together with max_split_size_mb is not supported; PyTorch itself fails "
        "an internal assertion with both when memory runs short (drop one of them)");
  }
}

}  // namespace swaplab
