#include "trace/import/storage_lives.hpp"

#include <algorithm>

#include "trace/import/sum.hpp"

namespace swaplab {
namespace {

void add(std::vector<std::uint32_t>& list, std::uint32_t life) {
  if (std::find(list.begin(), list.end(), life) == list.end()) list.push_back(life);
}

}  // namespace

std::vector<std::uint32_t> written_arguments(std::string_view schema) {
  std::vector<std::uint32_t> written;
  const auto open = schema.find('(');
  if (open == std::string_view::npos) return written;
  std::uint32_t argument = 0;
  int depth = 0;
  bool star = false;
  for (std::size_t i = open; i < schema.size(); ++i) {
    const char c = schema[i];
    depth += c == '(' || c == '[' ? 1 : 0;
    if ((c == ')' || c == ']') && --depth == 0) break;
    if (depth == 1 && c == '*') star = true;
    if (depth == 1 && c == ',') {
      if (!star) ++argument;
      star = false;
    }
    if (c == '!' && (written.empty() || written.back() != argument)) written.push_back(argument);
  }
  return written;
}

bool StorageLives::counts(const TensorUse& use) {
  if (use.on_device == on_device_ && use.extent > 0) return true;
  others_ += use.extent > 0 ? 1 : 0;
  return false;
}

std::uint32_t StorageLives::add_life(const TensorUse& use, std::uint32_t birth) {
  const auto life = static_cast<std::uint32_t>(lives_.size());
  current_[use.storage] = life;
  lives_.push_back({use.extent, birth, birth == kFromBefore ? 0 : birth, false, false});
  return life;
}

void StorageLives::touch(std::uint32_t life, const TensorUse& use) {
  lives_[life].bytes = std::max(lives_[life].bytes, use.extent);
  lives_[life].last = now();
}

void StorageLives::make(const std::vector<TensorUse>& outputs) {
  for (const TensorUse& use : outputs) {
    if (!counts(use)) continue;
    reused_ += current_.count(use.storage) != 0 ? 1 : 0;
    add_life(use, now());
  }
}

void StorageLives::use(const std::vector<TensorUse>& inputs, const std::vector<TensorUse>& outputs,
                       std::string_view schema, bool outermost) {
  const std::vector<std::uint32_t> written = written_arguments(schema);
  for (const TensorUse& use : inputs) {
    if (!counts(use)) continue;
    const auto found = current_.find(use.storage);
    const std::uint32_t life = found == current_.end() ? add_life(use, kFromBefore) : found->second;
    touch(life, use);
    if (lives_[life].birth == now()) continue;
    add(ops_.back().in, life);
    if (std::find(written.begin(), written.end(), use.argument) != written.end())
      add(ops_.back().wrote, life);
  }
  for (const TensorUse& use : outputs) {
    if (!counts(use)) continue;
    const auto found = current_.find(use.storage);
    const std::uint32_t life = found == current_.end() ? add_life(use, now()) : found->second;
    touch(life, use);
    lives_[life].result |= lives_[life].birth == now() && outermost;
  }
}

void StorageLives::finish() {
  for (std::uint32_t i = 0; i < lives_.size(); ++i) {
    StorageLife& life = lives_[i];
    if (life.birth == kFromBefore) continue;
    if (life.last == life.birth && !life.result) {
      add_checked(ops_[life.birth].scratch, life.bytes);
      life.scratch = true;
      ++scratch_;
      continue;
    }
    ops_[life.birth].out.push_back(i);
    ops_[life.last].freed.push_back(i);
  }
}

}  // namespace swaplab
