// CUDA memory snapshots of PyTorch: who allocated and freed what, in exact order, without operators.
#include "trace/import/torch_snapshot.hpp"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "trace/builder.hpp"
#include "trace/import/importer.hpp"
#include "trace/import/sum.hpp"

namespace swaplab {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

// One device's blocks: positions count the allocations of that device.
struct Block {
  std::int64_t bytes;
  std::uint32_t birth = kNone, death = kNone;  // the allocation itself; freed after that many allocations
};

struct History {
  std::vector<Block> blocks;
  std::vector<const SnapshotEvent*> allocations;
  std::int64_t unmatched = 0, repeated = 0, live_at_end = 0, peak = 0, pending = 0;
};

History follow(const std::vector<SnapshotEvent>& events) {
  History h;
  std::unordered_map<std::uint64_t, std::uint32_t> live;
  std::unordered_map<std::uint64_t, bool> requested;
  std::int64_t now = 0;
  for (const SnapshotEvent& e : events) {
    if (e.action == SnapshotAction::alloc) {
      const auto [it, inserted] = live.try_emplace(e.address, static_cast<std::uint32_t>(h.blocks.size()));
      if (!inserted) {
        ++h.repeated;
        now -= h.blocks[it->second].bytes;
        h.blocks[it->second].death = static_cast<std::uint32_t>(h.allocations.size());
        it->second = static_cast<std::uint32_t>(h.blocks.size());
      }
      h.blocks.push_back({e.bytes, static_cast<std::uint32_t>(h.allocations.size()), kNone});
      h.allocations.push_back(&e);
      add_checked(now, e.bytes);
      h.peak = std::max(h.peak, now);
    } else if (e.action == SnapshotAction::free_requested) {
      requested[e.address] = true;
    } else if (e.action == SnapshotAction::free_completed) {
      requested.erase(e.address);
      const auto found = live.find(e.address);
      if (found == live.end()) {
        ++h.unmatched;
        h.blocks.push_back({e.bytes, kNone, static_cast<std::uint32_t>(h.allocations.size())});
      } else {
        now -= h.blocks[found->second].bytes;
        h.blocks[found->second].death = static_cast<std::uint32_t>(h.allocations.size());
        live.erase(found);
      }
    }
  }
  h.pending = static_cast<std::int64_t>(requested.size());
  h.live_at_end = static_cast<std::int64_t>(live.size());
  return h;
}

// Blocks of the final map that no event explains: they lived all the time.
void add_silent_blocks(const TorchSnapshot& snapshot, std::size_t device,
                       const std::vector<SnapshotEvent>& events, History& h, std::int64_t& count) {
  std::unordered_map<std::uint64_t, bool> known;  // last action: allocated
  for (const SnapshotEvent& e : events) {
    if (e.action == SnapshotAction::alloc) known[e.address] = true;
    if (e.action == SnapshotAction::free_completed) known[e.address] = false;
  }
  for (const SnapshotSegment& segment : snapshot.segments) {
    if (segment.device != static_cast<std::int64_t>(device)) continue;
    for (const SnapshotBlock& block : segment.blocks) {
      if (!block.active) continue;
      const auto found = known.find(block.address);
      if (found != known.end() && found->second) continue;
      h.blocks.push_back({block.requested >= 0 ? block.requested : block.bytes, kNone, kNone});
      ++count;
    }
  }
}

class SnapshotImporter final : public Importer {
 public:
  ImporterInfo info() const override {
    return {"torch-snapshot", "CUDA memory snapshot of PyTorch (pickle, read without executing anything)",
            ""};
  }
  bool recognises(std::string_view head) const override {
    if (head.size() < 2 || head[0] != '\x80') return false;
    return head.find("device_traces") != std::string_view::npos ||
           (head.find("segments") != std::string_view::npos ||
            head.find("total_size") != std::string_view::npos);
  }
  ImportResult import(std::span<const ImportInput> inputs) const override {
    const TorchSnapshot s = read_torch_snapshot(inputs[0]);
    ImportResult result;
    ImportReport& r = result.report;
    r.version = !s.has_settings ? "layout of PyTorch 2.0" : "with allocator_settings";
    r.add_found("devices", static_cast<std::int64_t>(s.devices.size()));
    r.add_found("segments", static_cast<std::int64_t>(s.segments.size()));
    for (const auto& [action, count] : s.actions) r.add_found(action, count);
    std::int64_t silent = 0, live = 0, unmatched = 0, repeated = 0, pending = 0, peak = 0, baseline = 0;
    std::vector<History> histories;
    std::size_t longest = 0;
    for (std::size_t d = 0; d < s.devices.size(); ++d) {
      histories.push_back(follow(s.devices[d]));
      History& h = histories.back();
      live += h.live_at_end;
      unmatched += h.unmatched;
      repeated += h.repeated;
      pending += h.pending;
      peak = std::max(peak, h.peak);
      add_silent_blocks(s, d, s.devices[d], h, silent);
      for (const Block& b : h.blocks) add_checked(baseline, b.birth == kNone ? b.bytes : 0);
      if (h.allocations.size() > histories[longest].allocations.size()) longest = d;
    }
    std::int64_t reserved = 0;
    for (const SnapshotSegment& segment : s.segments) add_checked(reserved, segment.bytes);
    r.add_found("unmatched_free_completed", unmatched);
    r.add_found("live_at_end", live);
    r.add_found("peak_from_zero_bytes", peak);
    r.add_found("reserved_bytes", reserved);
    r.baseline = Bytes{baseline};
    r.derive("storages from before", unmatched,
             "freed here, allocated before the history began: they live from its start");
    r.derive("storages from the block map", silent,
             "allocated at the dump without an event: they live all the time");
    r.drop("allocations of a live address", repeated,
           "the free between is not in the file; the older storage ends there");
    r.drop("frees without completion", pending,
           "requested but waiting for events at the dump: the block still lives");
    r.drop("events without usable numbers", s.rejected,
           "no action, or a size or time beyond what a device can have");
    r.missing = {"operators", "device times", "which storages an operator reads"};
    if (!s.has_times) r.missing.push_back("times of the events (old layout)");
    if (histories.empty() || histories[longest].allocations.empty()) {
      r.study = StudyKind::none;
      r.study_reason = "the history holds no allocation";
      r.add_found("trace_operators", 0);
      return result;
    }
    if (histories.size() > 1) {
      std::int64_t others = 0;
      for (std::size_t d = 0; d < histories.size(); ++d)
        others += d == longest ? 0 : static_cast<std::int64_t>(histories[d].allocations.size());
      r.drop("allocations of other devices", others,
             "a trace is of one device: the one with the longest history (" + std::to_string(longest) + ")");
    }
    r.study = StudyKind::memory_only;
    r.study_reason = "exact allocations and frees, but no operators and no device times";
    result.trace = emit(s, histories[longest], longest, r);
    return result;
  }

 private:
  static Phase phase_of(std::string_view name) {
    if (name.rfind("Optimizer.step", 0) == 0) return Phase::optimizer;
    if (name.rfind("Optimizer.zero_grad", 0) == 0) return Phase::zero_grad;
    if (name.rfind("enumerate(DataLoader)", 0) == 0) return Phase::data;
    return Phase::unknown;
  }

  static Trace emit(const TorchSnapshot& s, const History& h, std::size_t device, ImportReport& r) {
    TraceBuilder b;
    TraceHeader header;
    header.source = "import-torch-snapshot";
    header.device = "cuda";
    b.set_header(header);
    const std::string place = "cuda:" + std::to_string(device);
    std::vector<StorageId> ids(h.blocks.size());
    std::vector<std::uint32_t> made(h.allocations.size());
    std::vector<std::vector<std::uint32_t>> freed(h.allocations.size() + 1);
    for (std::uint32_t i = 0; i < h.blocks.size(); ++i) {
      const Block& block = h.blocks[i];
      if (block.birth == kNone) {
        ids[i] = b.alloc(Bytes{block.bytes}, place, true);
      } else {
        made[block.birth] = i;
      }
      if (block.death != kNone) freed[block.death].push_back(i);
    }
    TraceBuilder::Signature signature;
    signature.name = "memory::alloc";
    const SigId sig = b.add_signature(signature);
    b.mark(MarkKind::iter_begin, "train", 0, Nanos{-1});
    std::int64_t last = h.allocations.front()->time_us, phases = 0;
    std::vector<SnapshotAnnotation> notes = s.annotations;
    std::stable_sort(notes.begin(), notes.end(),
                     [](const auto& x, const auto& y) { return x.time_us < y.time_us; });
    std::size_t note = 0;
    Phase phase = Phase::unknown;
    for (std::uint32_t i = 0; i < h.allocations.size(); ++i) {
      for (const std::uint32_t block : freed[i]) b.free(ids[block]);
      const SnapshotEvent& e = *h.allocations[i];
      for (; note < notes.size() && notes[note].time_us <= e.time_us; ++note) {
        const Phase of_note = phase_of(notes[note].name);
        if (of_note != Phase::unknown) phase = notes[note].start ? of_note : Phase::unknown;
      }
      const StorageId out = ids[made[i]] = b.alloc(Bytes{e.bytes}, place, false);
      TraceBuilder::Op op;
      op.signature = sig;
      op.phase = phase;
      phases += phase != Phase::unknown ? 1 : 0;
      if (e.time_us >= 0) op.host_gap = Nanos{std::max<std::int64_t>(e.time_us - last, 0) * 1000};
      last = std::max(last, e.time_us);
      op.out = std::span(&out, 1);
      b.op(op);
    }
    for (const std::uint32_t block : freed[h.allocations.size()]) b.free(ids[block]);
    b.mark(MarkKind::iter_end, "", 0, Nanos{-1});
    r.add_found("trace_operators", static_cast<std::int64_t>(h.allocations.size()));
    r.add_found("storages", static_cast<std::int64_t>(h.blocks.size()));
    r.add_found("iterations", 1);
    r.derive("operators", static_cast<std::int64_t>(h.allocations.size()),
             "each allocation stands as an operator that makes its storage");
    r.derive("phases from annotations", phases, "Optimizer and DataLoader annotations, by time");
    r.derive("iterations", 1, "the whole history is one iteration");
    return b.finish();
  }
};

}  // namespace
SWAPLAB_REGISTER_IMPORTER(SnapshotImporter)
}  // namespace swaplab
