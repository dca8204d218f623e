#include "policy/chameleon/learned.hpp"

#include <algorithm>

namespace swaplab::adaptive {
namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
  return hash ^ hash >> 29;
}

void index_uses(LearnedIteration& it) {
  it.use_begin.assign(it.objects.size() + 1, 0);
  for (const Operand& operand : it.operands) ++it.use_begin[operand.object + 1];
  for (std::size_t o = 0; o < it.objects.size(); ++o) it.use_begin[o + 1] += it.use_begin[o];
  it.uses.resize(it.operands.size());
  std::vector<std::uint32_t> next(it.use_begin.begin(), it.use_begin.end() - 1);
  for (std::uint32_t op = 0; op < it.op_count(); ++op) {
    for (const Operand& operand : it.operands_of(op)) it.uses[next[operand.object]++] = op;
  }
}

}  // namespace

void Recorder::start(const View& view) {
  for (Slot s = view.oldest(); s != kNoSlot; s = view.newer(s)) known_.push_back(s);
}

void Recorder::begin_iteration() {
  now_ = LearnedIteration();
  slots_.clear();
  ++epoch_;
  first_op_ = true;
}

std::uint32_t Recorder::object_of(Slot slot, bool created, const View& view) {
  const std::uint32_t s = index(slot);
  if (s >= object_.size()) {
    object_.resize(s + 1, 0);
    epoch_of_.resize(s + 1, 0);
  }
  if (epoch_of_[s] != epoch_) {
    epoch_of_[s] = epoch_;
    object_[s] = static_cast<std::uint32_t>(now_.objects.size());
    now_.objects.push_back({view.size(slot), view.storage_class(slot), created ? now_.op_count() : kNever,
                            kNever, remember(slot, view)});
  }
  return object_[s];
}

void Recorder::note_frees(std::span<const GapEvent> events) {
  for (const GapEvent& event : events) {
    const std::uint32_t s = index(event.slot);
    if (event.is_free && s < epoch_of_.size() && epoch_of_[s] == epoch_) {
      now_.objects[object_[s]].death = now_.op_count();
    }
  }
}

void Recorder::op(std::uint32_t op, const View& view) {
  if (first_op_) {
    first_op_ = false;
    for (const Slot slot : known_) object_of(slot, false, view);
    known_.clear();
  }
  // What was freed since the last call: behind the allocations of the operator before, then before this one.
  if (now_.op_count() > 0) note_frees(view.gap_events(op - 1).subspan(leading_frees_));
  const auto frees = view.gap_events(op);
  leading_frees_ = frees.size();
  note_frees(frees);
  const NameId name = view.op_name(op);
  const SigId signature = view.op_signature(op);
  for (const Access& access : view.operands(op)) {
    const bool created = (access.flags & kCreate) != 0 && view.residency(access.slot) == Residency::absent;
    now_.operands.push_back({object_of(access.slot, created, view), access.flags});
    slots_.push_back(access.slot);
  }
  now_.name.push_back(name);
  now_.signature.push_back(signature);
  now_.phase.push_back(view.op_phase(op));
  now_.operand_begin.push_back(static_cast<std::uint32_t>(now_.operands.size()));
  const auto last = [](const std::vector<std::uint64_t>& hashes) {
    return hashes.empty() ? 0 : hashes.back();
  };
  now_.signature_prefix.push_back(mix(last(now_.signature_prefix), index(signature) + 1ULL));
  now_.name_prefix.push_back(mix(last(now_.name_prefix), index(name) + 1ULL));
}

LearnedIteration Recorder::finish(const View& view) {
  if (now_.op_count() > 0) note_frees(view.gap_events(view.position()).subspan(leading_frees_));
  LearnedIteration it = std::move(now_);
  now_ = LearnedIteration();
  for (const Object& object : it.objects) {
    if (object.death == kNever) known_.push_back(object.storage.slot);
  }
  index_uses(it);
  return it;
}

Ppm edit_share(std::span<const NameId> a, std::span<const NameId> b, Ppm limit) {
  // Greedy O(ND) (Myers): furthest x on each diagonal after d edits.
  const auto n = static_cast<std::int64_t>(a.size()), m = static_cast<std::int64_t>(b.size());
  const std::int64_t longest = std::max<std::int64_t>(1, std::max(n, m));
  const std::int64_t most = longest * limit / kUnchanged;
  if (std::max(n, m) - std::min(n, m) > most) return kUnchanged;
  std::vector<std::int64_t> furthest(static_cast<std::size_t>(2 * most + 3), 0);
  const auto at = [&](std::int64_t diagonal) -> std::int64_t& {
    return furthest[static_cast<std::size_t>(diagonal + most + 1)];
  };
  for (std::int64_t d = 0; d <= most; ++d) {
    for (std::int64_t k = -d; k <= d; k += 2) {
      std::int64_t x = k == -d || (k != d && at(k - 1) < at(k + 1)) ? at(k + 1) : at(k - 1) + 1;
      std::int64_t y = x - k;
      while (x < n && y < m && a[static_cast<std::size_t>(x)] == b[static_cast<std::size_t>(y)]) ++x, ++y;
      at(k) = x;
      if (x >= n && y >= m) return d * kUnchanged / longest;
    }
  }
  return kUnchanged;
}

}  // namespace swaplab::adaptive
