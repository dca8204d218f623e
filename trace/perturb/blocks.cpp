#include "trace/perturb/blocks.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "trace/perturb/removal.hpp"

namespace swaplab {
namespace {

struct BlockName {
  std::string_view prefix;
  std::int64_t number = -1;  // -1: of no block
};

BlockName block_name(std::string_view parameter) {
  std::size_t begin = 0;
  while (begin < parameter.size()) {
    const std::size_t end = std::min(parameter.find('.', begin), parameter.size());
    std::int64_t number = 0;
    const auto [rest, code] = std::from_chars(parameter.data() + begin, parameter.data() + end, number);
    if (begin > 0 && code == std::errc() && rest == parameter.data() + end && end < parameter.size())
      return {parameter.substr(0, begin), number};
    begin = end + 1;
  }
  return {};
}

std::string_view frequent_prefix(const EditableTrace& edit, const Dataflow& flow) {
  std::map<std::string_view, std::set<std::int64_t>> numbers;
  for (const auto& [id, uses] : flow.storages) {
    const BlockName name = block_name(edit.storage_name(StorageId{id}));
    if (name.number >= 0 && edit.storage_class(StorageId{id}) == StorageClass::parameter)
      numbers[name.prefix].insert(name.number);
  }
  const auto most = std::max_element(numbers.begin(), numbers.end(), [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  });
  return most == numbers.end() ? std::string_view() : most->first;
}

void find_ends(const EditableTrace& edit, const Dataflow& flow, Block& block) {
  std::vector<StorageId> outputs;
  for (std::uint32_t node = block.first; node < block.end; ++node) {
    for (const StorageId s : flow.made(edit, node)) {
      block.made.push_back(s);
      const auto& by = flow.uses(s).by;
      const bool behind = std::any_of(by.begin(), by.end(), [&](std::uint32_t user) {
        return user >= block.end && edit.op(flow.nodes[user].op).phase == Phase::forward;
      });
      if (behind) outputs.push_back(s);
    }
  }
  if (outputs.empty()) return;
  block.output = *std::max_element(outputs.begin(), outputs.end(),
                                   [&](StorageId a, StorageId b) { return edit.bytes(a) < edit.bytes(b); });
  for (std::uint32_t node = block.first; node < block.end; ++node) {
    for (const StorageId s : edit.op(flow.nodes[node].op).in) {
      const std::uint32_t maker = flow.uses(s).made_by;
      if (maker == kFromBefore || maker >= block.first || edit.bytes(s) != edit.bytes(block.output)) continue;
      block.input = s;
      return;
    }
  }
}

}  // namespace

std::vector<Block> find_blocks(const EditableTrace& edit, const Dataflow& flow) {
  const std::string_view prefix = frequent_prefix(edit, flow);
  std::vector<Block> blocks;
  if (prefix.empty()) return blocks;
  bool open = false;
  const auto close = [&](std::uint32_t node) {
    if (open) blocks.back().end = node;
    open = false;
  };
  for (std::uint32_t node = 0; node < flow.nodes.size(); ++node) {
    const EditOp& op = edit.op(flow.nodes[node].op);
    if (op.phase != Phase::forward) {
      close(node);
      continue;
    }
    for (const StorageId s : op.in) {
      const StorageClass cls = edit.storage_class(s);
      if (cls != StorageClass::parameter && cls != StorageClass::buffer) continue;
      const BlockName name = block_name(edit.storage_name(s));
      const bool inside = name.number >= 0 && name.prefix == prefix;
      if (open && inside && blocks.back().number == name.number) continue;
      close(node);
      if (!inside) continue;
      blocks.push_back({name.number, node, node, StorageId{kNever}, StorageId{kNever}, {}});
      open = true;
    }
  }
  close(static_cast<std::uint32_t>(flow.nodes.size()));
  for (Block& block : blocks) find_ends(edit, flow, block);
  return blocks;
}

void drop_blocks(EditableTrace& edit, std::size_t iteration, const std::vector<std::int64_t>& numbers) {
  Removal removal(edit, iteration);
  bool any = false;
  for (const Block& block : find_blocks(edit, removal.flow())) {
    if (std::find(numbers.begin(), numbers.end(), block.number) == numbers.end()) continue;
    if (index(block.input) == kNever) continue;
    for (std::uint32_t node = block.first; node < block.end; ++node) removal.remove(node);
    removal.substitute(block.output, block.input);
    any = true;
  }
  if (any) removal.run();
}

}  // namespace swaplab
