// A CUDA memory snapshot of PyTorch (torch.cuda.memory._dump_snapshot), as it stands in the file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trace/import/input.hpp"

namespace swaplab {

enum class SnapshotAction : std::uint8_t {
  alloc,
  free_requested,
  free_completed,
  segment_alloc,
  segment_free,
  segment_map,
  segment_unmap,
  snapshot,
  oom,
  other
};

struct SnapshotEvent {
  SnapshotAction action;
  std::uint64_t address;
  std::int64_t bytes;    // as requested; of a segment its whole size
  std::uint64_t stream;  // the CUDA handle
  std::int64_t time_us;  // -1 in the layout of PyTorch 2.0
};

struct SnapshotBlock {
  std::uint64_t address;
  std::int64_t bytes, requested;  // requested: -1 unknown
  bool active;                    // allocated, or freed and waiting for events
};
struct SnapshotSegment {
  std::int64_t device;
  std::uint64_t address;
  std::int64_t bytes;
  std::uint64_t stream;
  bool large, expandable;
  std::vector<SnapshotBlock> blocks;  // at the time of the dump, by address
};

struct SnapshotAnnotation {
  std::string name;
  bool start;
  std::int64_t device, time_us;
};

struct TorchSnapshot {
  std::vector<std::vector<SnapshotEvent>> devices;  // oldest event first
  std::vector<SnapshotSegment> segments;
  std::vector<SnapshotAnnotation> annotations;
  std::map<std::string, std::int64_t> actions;  // all devices
  bool has_settings = false, has_times = false;
  std::string conf;  // PYTORCH_CUDA_ALLOC_CONF
  bool expandable_segments = false;
  std::int64_t max_split_bytes = -1;
  std::int64_t rejected = 0;  // events without usable numbers
};

// Throws Error(input) with file, byte and what was expected. Files up to 1 GiB.
TorchSnapshot read_torch_snapshot(const ImportInput& input);

}  // namespace swaplab
