// The events of a PyTorch profiler trace (Kineto Chrome JSON), as columns of what the import needs.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trace/import/input.hpp"
#include "trace/import/json_elements.hpp"

namespace swaplab::kineto {

inline constexpr std::uint32_t kNoIndex = std::numeric_limits<std::uint32_t>::max();
inline constexpr std::uint64_t kNoId = std::numeric_limits<std::uint64_t>::max();

// Texts by number; 0 is "".
class Texts {
 public:
  Texts() { intern(""); }
  std::uint32_t intern(std::string_view text);
  const std::string& operator[](std::uint32_t id) const { return *texts_[id]; }
  std::size_t size() const { return texts_.size(); }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::unordered_map<std::string, std::uint32_t, Hash, std::equal_to<>> ids_;
  std::vector<const std::string*> texts_;
};

// Times are ns of the file's own clock. Ids (correlation, External id) are 64-bit, or a number given to
// their text when they are not; kNoId when absent.
struct CpuOp {
  std::int64_t ts, dur;
  std::uint32_t thread, name;
  std::uint32_t dims = 0, types = 0;  // texts: raw "Input Dims" and "Input type"
  std::uint64_t external = kNoId, record = kNoId;
  std::int64_t sequence = -1;
  bool on_backward_thread = false;  // "Fwd thread id" is not 0
};
struct Launch {  // a call of the CUDA or HIP runtime
  std::int64_t ts, dur;
  std::uint32_t thread, name;
  std::uint64_t correlation = kNoId, external = kNoId;
};
enum class DeviceWork : std::uint8_t { kernel, copy, set };
struct DeviceEvent {
  std::int64_t ts, dur;
  std::uint32_t name, stream;  // stream: number given to (device, stream)
  std::uint64_t correlation = kNoId, external = kNoId;
  DeviceWork work = DeviceWork::kernel;
};
struct MemoryEvent {
  std::int64_t ts, bytes;
  std::uint32_t thread;
  std::int32_t device_type = 0, device = -1;
  std::uint64_t address = kNoId;
  std::int64_t total_allocated = -1;
  std::int64_t order = 0;  // "Ev Idx", or the place in the file
};
struct Annotation {  // user_annotation, and what the 2021 schema keeps among the operators
  std::int64_t ts, dur;
  std::uint32_t thread, name;
};

struct Events {
  Texts texts;
  std::vector<CpuOp> ops;
  std::vector<Launch> launches;
  std::vector<DeviceEvent> device;
  std::vector<MemoryEvent> memory;
  std::vector<Annotation> annotations;
  // Where a flow from a forward operator ends: the thread, and the begin of the backward operator.
  std::vector<std::pair<std::uint32_t, std::int64_t>> backward_flows;

  std::int64_t total = 0;
  std::map<std::string, std::int64_t> by_phase, by_category;  // "X" ..., "cpu_op" ..., "None" without
  std::int64_t python_frames = 0, flows = 0, collectives = 0, with_shapes = 0, named_backward = 0;
  std::map<std::string, std::int64_t> collective_kernels;  // by "Collective name"
  std::int64_t collective_bytes =
      0;  // that the kernels among them take in ("In msg nelems" of their "dtype")
  std::uint32_t threads = 0, streams = 0;
  std::string schema, version_text;
  bool bare_array = false;

  JsonRepairs repairs;
  std::int64_t negative_durations = 0, zero_kernels = 0, bad_times = 0, cut_times = 0, text_numbers = 0;
  std::int64_t unclosed_slices = 0, unopened_slices = 0, slices = 0;
};

// Throws Error(input) with file, byte and what was expected.
Events read_events(const ImportInput& input);

}  // namespace swaplab::kineto
