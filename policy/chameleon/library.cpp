#include "policy/chameleon/library.hpp"

#include <algorithm>
#include <utility>

#include "sim/wide_math.hpp"

namespace swaplab::adaptive {

Bytes peak_of(const LearnedIteration& it) {
  std::vector<std::int64_t> change(it.op_count() + std::size_t{1}, 0);
  std::int64_t live = 0, peak = 0;
  for (const Object& o : it.objects) {
    if (o.born == kNever) {
      live += o.bytes.value;
    } else {
      change[o.born] += o.bytes.value;
    }
    if (o.death != kNever) change[o.death] -= o.bytes.value;
  }
  for (const std::int64_t c : change) {
    live += c;
    peak = std::max(peak, live);
  }
  return Bytes{peak};
}

// What followed the most recent occurrence of the longest run of sequences that ends like `past`; the same
// again when there is none.
std::size_t Library::predict(const std::vector<std::size_t>& past) const {
  constexpr std::size_t kLongest = 16;
  const std::size_t n = past.size();
  std::size_t best = past.back(), longest = 0;
  for (std::size_t at = n - 1; at-- > 0;) {
    std::size_t same = 0;
    while (same < kLongest && same <= at && past[at - same] == past[n - 1 - same]) ++same;
    if (same <= longest || past[at + 1] == kNone) continue;
    longest = same;
    best = past[at + 1];
  }
  return best;
}

std::vector<std::size_t> Library::forecast(std::size_t running, std::size_t count) const {
  std::vector<std::size_t> past = history_;
  past.push_back(running);
  std::vector<std::size_t> next;
  for (std::size_t i = 0; i < count; ++i) {
    next.push_back(predict(past));
    past.push_back(next.back());
  }
  return next;
}

Library::Match Library::beginning_with(const LearnedIteration& now, std::uint32_t k,
                                       std::size_t except) const {
  Match best;
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    if (e == except) continue;
    const LearnedIteration& it = entries_[e]->it;
    if (k >= it.op_count()) continue;
    const bool same = it.signature_prefix[k] == now.signature_prefix[k];
    if (!same && (best.exact || it.name_prefix[k] != now.name_prefix[k])) continue;
    if (best.entry != kNone && best.exact == same && entries_[e]->used <= entries_[best.entry]->used)
      continue;
    best = {e, same};
  }
  return best;
}

bool Library::identical(const LearnedIteration& a, const LearnedIteration& b) {
  return a.op_count() == b.op_count() && a.signature_prefix.back() == b.signature_prefix.back();
}

std::size_t Library::find(const LearnedIteration& it) const {
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    if (identical(entries_[e]->it, it)) return e;
  }
  const Bytes peak = peak_of(it);
  std::size_t best = kNone;
  Ppm best_share = same_sequence_;
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    const Entry& entry = *entries_[e];
    const Bytes apart = std::max(peak, entry.peak) - std::min(peak, entry.peak);
    if (apart.value > ceil_mul_div(entry.peak.value, same_memory_, kUnchanged)) continue;
    const Ppm share = edit_share(entry.it.name, it.name, best_share);
    if (share < best_share) best = e, best_share = share;
  }
  return best;
}

std::size_t Library::add(std::unique_ptr<Entry> entry) {
  if (entries_.size() < kept_) {
    entries_.push_back(std::move(entry));
    return entries_.size() - 1;
  }
  const std::size_t newest = last();
  std::size_t oldest = kNone;
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    if (e != newest && (oldest == kNone || entries_[e]->used < entries_[oldest]->used)) oldest = e;
  }
  if (oldest == kNone) oldest = 0;
  std::replace(history_.begin(), history_.end(), oldest, kNone);
  entries_[oldest] = std::move(entry);
  return oldest;
}

void Library::note(std::size_t entry, std::int64_t iteration) {
  entries_[entry]->used = iteration;
  history_.push_back(entry);
  if (history_.size() > kHistory) history_.erase(history_.begin(), history_.begin() + kHistory / 2);
}

}  // namespace swaplab::adaptive
