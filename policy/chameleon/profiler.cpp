#include "policy/chameleon/profiler.hpp"

#include <algorithm>
#include <numeric>

namespace swaplab::chameleon {

namespace {

constexpr std::int64_t kHostSide = std::int64_t{1} << 40;  // identity of a tensor's copy on the host

}  // namespace

void DetailedProfiler::begin_iteration() {
  profile_ = IterationProfile();
  ++epoch_;
}

std::uint32_t DetailedProfiler::row(Slot slot, std::uint32_t birth_rank, Bytes bytes, StorageClass cls) {
  const std::uint32_t s = index(slot);
  if (s >= row_of_.size()) {
    row_of_.resize(s + 1, 0);
    row_epoch_.resize(s + 1, 0);
  }
  if (row_epoch_[s] != epoch_) {
    row_epoch_[s] = epoch_;
    row_of_[s] = static_cast<std::uint32_t>(profile_.storages.size());
    profile_.storages.push_back(
        {static_cast<std::int64_t>(birth_rank) << 32 | s, bytes, tensor_kind_of(cls)});
  }
  return row_of_[s];
}

void DetailedProfiler::observe(const View& view) {
  std::erase_if(leaving_, [&](const Leaving& l) {
    if (!l.storage.alive(view)) return true;
    const Slot slot = l.storage.slot;
    const Residency residency = view.residency(slot);
    if (residency == Residency::host) record(op_count(), true, slot, view.size(slot), l.out_of_memory);
    return residency != Residency::outgoing;  // handed on or called back
  });
}

void DetailedProfiler::returning(std::uint32_t op, Slot slot, Bytes bytes) {
  const std::uint32_t s = index(slot);
  if (s < out_epoch_.size() && out_epoch_[s] == epoch_) record(op, false, slot, bytes, false);
}

void DetailedProfiler::record(std::uint32_t op, bool out, Slot slot, Bytes bytes, bool out_of_memory) {
  const std::uint32_t s = index(slot);
  if (s >= out_epoch_.size()) out_epoch_.resize(s + 1, 0);
  out_epoch_[s] = out ? epoch_ : 0;
  const std::int64_t device = s, host = device + kHostSide;
  profile_.swaps.push_back({op, out, bytes, out_of_memory, out ? device : host, out ? host : device});
}

IterationProfile DetailedProfiler::finish(Nanos duration, bool step_out_of_memory,
                                          std::vector<std::string> names) {
  IterationProfile p = std::move(profile_);
  profile_ = IterationProfile();
  p.duration = duration;
  p.step_out_of_memory = step_out_of_memory;
  p.names = std::move(names);
  // Rows in ascending id, as the generator breaks ties.
  std::vector<std::uint32_t> order(p.storages.size()), place(p.storages.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return p.storages[a].id < p.storages[b].id; });
  std::vector<ProfiledTensor> sorted;
  sorted.reserve(order.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    place[order[i]] = i;
    sorted.push_back(p.storages[order[i]]);
  }
  p.storages = std::move(sorted);
  for (std::uint32_t& tensor : p.tensors) tensor = place[tensor];
  // A copy forced by the last operator is recorded after it.
  for (SwapRecord& swap : p.swaps) swap.op = std::min(swap.op, p.op_count() == 0 ? 0 : p.op_count() - 1);
  std::stable_sort(p.swaps.begin(), p.swaps.end(),
                   [](const SwapRecord& a, const SwapRecord& b) { return a.op < b.op; });
  return p;
}

}  // namespace swaplab::chameleon
