// A YAML or JSON document as a plain tree with line numbers, and strict access to it: what is not
// known is an error with a suggestion, what has the wrong shape is an error with file and line.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace swaplab {

struct ConfigEntry;

struct ConfigNode {
  enum class Kind { null, scalar, list, map };
  Kind kind = Kind::null;
  int line = 0;                   // 1-based; 0: from the command line
  std::string scalar;             // text as typed
  bool quoted = false;            // a scalar between quotes
  std::vector<ConfigNode> items;  // of a list
  std::vector<ConfigEntry> keys;  // of a map, in file order

  const ConfigNode* find(std::string_view key) const;
};

struct ConfigEntry {
  ConfigEntry(std::string key, ConfigNode node) : first(std::move(key)), second(std::move(node)) {}
  std::string first;
  ConfigNode second;
};

// Where a node stands, for messages: "file:line: path: ...".
class ConfigPlace {
 public:
  ConfigPlace(std::string file, const ConfigNode& node, std::string path = "")
      : file_(std::move(file)), node_(&node), path_(std::move(path)) {}
  const ConfigNode& node() const { return *node_; }
  const std::string& path() const { return path_; }
  const std::string& file() const { return file_; }

  // Each throws Error(input) when the shape differs.
  const std::string& text() const;
  bool flag() const;  // yes, no, true, false
  // An integer within [low, high], without unit.
  long long integer(long long low, long long high) const;
  ConfigPlace key(std::string_view name) const;  // must exist
  bool has(std::string_view name) const { return node_->find(name) != nullptr; }
  std::vector<ConfigPlace> items() const;
  std::vector<std::pair<std::string, ConfigPlace>> entries() const;
  // Refuses keys outside `known`.
  void allow_only(const std::vector<std::string>& known) const;
  [[noreturn]] void fail(const std::string& message) const;

 private:
  std::string file_;
  const ConfigNode* node_;
  std::string path_;
};

// One document. Throws Error(input) with file and line: not YAML, empty, several documents, a key
// twice, nested deeper than 64 levels.
ConfigNode parse_config_text(const std::string& text, const std::string& file);
ConfigNode load_config_file(const std::string& path);

// "a.b.c=value" of the command line: sets (or replaces) one value; the value is YAML. A key may hold
// dots itself ("machine.links.h2d.bandwidth" under "parameters"), so the first existing key that a
// prefix of the path names wins. Throws Error(usage).
void apply_config_override(ConfigNode& root, const std::string& assignment);

}  // namespace swaplab
