// Replays a log of allocator requests and writes what happened, in the reference's text format.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "sim/allocator/config.hpp"

namespace swaplab {

// One line of a request log: `m ID SIZE STREAM`, `f ID`, `r ID STREAM`, `c STREAM N`, `z`, `e`.
struct AllocRequest {
  enum class Kind : std::uint8_t { malloc, free, record_stream, complete, complete_all, empty_cache };
  Kind kind = Kind::malloc;
  std::uint32_t stream = 0;
  std::uint64_t id = 0;      // as in the file
  std::uint32_t dense = 0;   // the same id, numbered by first appearance
  std::uint64_t amount = 0;  // bytes of a malloc, events of a complete
};

struct RequestLog {
  std::vector<AllocRequest> requests;
  std::uint32_t id_count = 0;
};

// Throws Error(input) with `name` and the line: unknown request, missing or extra field, a number out
// of range, a stream from kMaxAllocatorStreams, an id that is allocated twice. `#` starts a comment line.
RequestLog parse_requests(std::istream& in, const std::string& name);

struct ReplayOptions {
  std::string name = "replay";                      // for the header
  std::string request_name = "-";                   // for the header and messages
  std::string conf;                                 // PYTORCH_CUDA_ALLOC_CONF; empty is the default
  std::uint64_t capacity = std::uint64_t{1} << 40;  // bytes
  double fraction = 0;                              // memory fraction; 0 sets none
  std::uint64_t full = 1000000;                     // requests that get a line of their own
  std::uint64_t every = 1000000;                    // a checkpoint after so many requests, and after the last
  bool block_map = true;                            // list the final block map

  // Line limits of the reference's long logs: 2,000 lines, checkpoints every 1,000, no block map.
  void summarise() {
    full = 2000;
    every = 1000;
    block_map = false;
  }
};

// Runs the log on a fresh allocator over a StubDevice and writes the result. Throws Error(usage) for a
// bad conf, fraction or capacity. The combination that require_supported() refuses is run as PyTorch
// runs it: a request may then end in ERR.
void replay_requests(const RequestLog& log, const ReplayOptions& options, std::ostream& out);
void replay_requests(std::istream& in, const ReplayOptions& options, std::ostream& out);

}  // namespace swaplab
