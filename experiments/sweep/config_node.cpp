#include "experiments/sweep/config_node.hpp"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>

#include "trace/error.hpp"

namespace swaplab {
namespace {

constexpr int kDeepest = 64;
constexpr std::size_t kMostNodes = 1'000'000;

[[noreturn]] void fail_at(const std::string& file, int line, const std::string& message) {
  throw Error(ErrorKind::input, file + (line > 0 ? ":" + std::to_string(line) : "") + ": " + message);
}

// `left`: nodes that may still be made. Aliases (*name) are copies, and a few lines of them can ask for
// billions.
ConfigNode convert(const YAML::Node& from, const std::string& file, int depth, std::size_t& left) {
  ConfigNode node;
  node.line = from.Mark().line >= 0 ? from.Mark().line + 1 : 0;
  if (depth > kDeepest) fail_at(file, node.line, "nested deeper than 64 levels");
  if (left-- == 0)
    fail_at(file, node.line,
            "over " + std::to_string(kMostNodes) + " values, aliases (*name) counted as copies");
  if (from.IsScalar()) {
    node.kind = ConfigNode::Kind::scalar;
    node.scalar = from.Scalar();
    node.quoted = from.Tag() == "!";
  } else if (from.IsSequence()) {
    node.kind = ConfigNode::Kind::list;
    for (const auto& item : from) node.items.push_back(convert(item, file, depth + 1, left));
  } else if (from.IsMap()) {
    node.kind = ConfigNode::Kind::map;
    for (const auto& entry : from) {
      const int line = entry.first.Mark().line + 1;
      if (!entry.first.IsScalar()) fail_at(file, line, "expected a plain word as key");
      const std::string& key = entry.first.Scalar();
      if (node.find(key) != nullptr) fail_at(file, line, key + ": key stands twice");
      node.keys.emplace_back(key, convert(entry.second, file, depth + 1, left));
    }
  }
  return node;
}

ConfigNode* find_mutable(ConfigNode& node, std::string_view key) {
  for (auto& [name, child] : node.keys) {
    if (name == key) return &child;
  }
  return nullptr;
}

}  // namespace

const ConfigNode* ConfigNode::find(std::string_view key) const {
  for (const auto& [name, child] : keys) {
    if (name == key) return &child;
  }
  return nullptr;
}

void ConfigPlace::fail(const std::string& message) const {
  fail_at(file_, node_->line, (path_.empty() ? "" : path_ + ": ") + message);
}

const std::string& ConfigPlace::text() const {
  if (node_->kind != ConfigNode::Kind::scalar) fail("expected a single value");
  return node_->scalar;
}

bool ConfigPlace::flag() const {
  const std::string& t = text();
  if (t == "yes" || t == "true") return true;
  if (t == "no" || t == "false") return false;
  fail("'" + t + "' is neither yes nor no");
}

long long ConfigPlace::integer(long long low, long long high) const {
  const std::string& t = text();
  long long value = 0;
  const auto [stop, error] = std::from_chars(t.data(), t.data() + t.size(), value);
  if (error != std::errc() || stop != t.data() + t.size() || value < low || value > high) {
    fail("'" + t + "' is not an integer from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return value;
}

ConfigPlace ConfigPlace::key(std::string_view name) const {
  if (node_->kind != ConfigNode::Kind::map) fail("expected a mapping (key: value)");
  const ConfigNode* child = node_->find(name);
  if (child == nullptr) {
    std::vector<std::string> present;
    for (const auto& entry : node_->keys) present.push_back(entry.first);
    const std::string near = nearest_name(name, present);
    fail("missing key '" + std::string(name) + "'" + (near.empty() ? "" : "; found '" + near + "'"));
  }
  return {file_, *child, path_.empty() ? std::string(name) : path_ + "." + std::string(name)};
}

std::vector<ConfigPlace> ConfigPlace::items() const {
  if (node_->kind != ConfigNode::Kind::list) fail("expected a list");
  if (node_->items.empty()) fail("the list is empty");
  std::vector<ConfigPlace> places;
  for (std::size_t i = 0; i < node_->items.size(); ++i)
    places.emplace_back(file_, node_->items[i], path_ + "[" + std::to_string(i) + "]");
  return places;
}

std::vector<std::pair<std::string, ConfigPlace>> ConfigPlace::entries() const {
  if (node_->kind != ConfigNode::Kind::map) fail("expected a mapping (key: value)");
  std::vector<std::pair<std::string, ConfigPlace>> places;
  for (const auto& entry : node_->keys) places.emplace_back(entry.first, key(entry.first));
  return places;
}

void ConfigPlace::allow_only(const std::vector<std::string>& known) const {
  for (const auto& [name, place] : entries()) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      place.fail("unknown key" + did_you_mean(name, known));
  }
}

ConfigNode parse_config_text(const std::string& text, const std::string& file) {
  try {
    // A NUL or a tab-indented line makes yaml-cpp's messages useless; say it plainly.
    if (text.find('\0') != std::string::npos)
      fail_at(file, 1, "holds a NUL byte; expected YAML or JSON text");
    const YAML::Node root = YAML::Load(text);
    if (!root.IsMap()) fail_at(file, 1, "expected a mapping (key: value) at the top");
    std::size_t left = kMostNodes;
    return convert(root, file, 0, left);
  } catch (const YAML::Exception& e) {
    fail_at(file, std::max(e.mark.line, 0) + 1, "not readable as YAML: " + e.msg);
  }
}

ConfigNode load_config_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorKind::input, path + ": cannot be read");
  std::ostringstream text;
  text << in.rdbuf();
  if (text.str().size() > (std::size_t{4} << 20))
    throw Error(ErrorKind::input, path + ": over 4 MiB, not a sweep file");
  return parse_config_text(text.str(), path);
}

void apply_config_override(ConfigNode& root, const std::string& assignment) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw Error(ErrorKind::usage,
                "'" + assignment + "': expected key.path=value, e.g. parameters.budget=0.5x");
  }
  std::string path = assignment.substr(0, equals);
  const std::string full_path = path;
  ConfigNode value;
  try {
    std::size_t left = kMostNodes;
    value = convert(YAML::Load(assignment.substr(equals + 1)), full_path, 0, left);
  } catch (const YAML::Exception& e) {
    throw Error(ErrorKind::usage, "'" + assignment + "': the value is not readable as YAML: " + e.msg);
  }
  const auto clear_lines = [](auto&& self, ConfigNode& node) -> void {
    node.line = 0;
    for (ConfigNode& item : node.items) self(self, item);
    for (auto& entry : node.keys) self(self, entry.second);
  };
  clear_lines(clear_lines, value);
  ConfigNode* at = &root;
  while (true) {
    if (at->kind != ConfigNode::Kind::map) {
      if (at->kind != ConfigNode::Kind::null)
        throw Error(ErrorKind::usage, "'" + full_path + "': a part of this path holds a value, not keys");
      at->kind = ConfigNode::Kind::map;
    }
    if (ConfigNode* whole = find_mutable(*at, path)) {
      *whole = std::move(value);
      return;
    }
    // Descend into the longest existing prefix; without one, into the first word (created), except
    // that below "parameters" a whole dotted path is one key.
    std::size_t dot = path.rfind('.');
    ConfigNode* next = nullptr;
    for (; dot != std::string::npos && dot > 0; dot = path.rfind('.', dot - 1)) {
      next = find_mutable(*at, path.substr(0, dot));
      if (next != nullptr) break;
    }
    if (next != nullptr) {
      at = next;
      path = path.substr(dot + 1);
      continue;
    }
    const std::size_t first = path.find('.');
    const bool one_key = first == std::string::npos || path.starts_with("machine.");
    at->keys.emplace_back(one_key ? path : path.substr(0, first), ConfigNode{});
    if (one_key) {
      at->keys.back().second = std::move(value);
      return;
    }
    at = &at->keys.back().second;
    at->kind = ConfigNode::Kind::map;
    path = path.substr(first + 1);
  }
}

}  // namespace swaplab
