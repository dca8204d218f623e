// Random valid traces, the same for the same seed on every platform.
#pragma once

#include <cstdint>

#include "trace/model.hpp"

namespace swaplab::test {

struct RandomTraceOptions {
  std::uint32_t iterations = 3;
  std::uint32_t ops_per_iteration = 24;  // at most; at least 1
  bool steady = false;                 // every iteration alike and consuming what the one before left behind
  const char* spool_folder = nullptr;  // build in temporary files there
  bool huge = true;                    // some storages beyond 2^53 B, times, FLOP and byte counts up to 2^63
  bool odd_text = true;                // quotes, escapes and non-ASCII in names, header and JSON texts
};

// Everything the model can say: train, validation and skipped iterations, micro-batches, phases, unknown
// marks, streams, synchronising reads, views, in-place writes, repeated arguments, resizes, storages from
// before the trace, storages beyond 2^53 B, tags before and after use, saved lists, allocator events, frees
// at any place, unused signatures.
Trace random_trace(std::uint64_t seed, const RandomTraceOptions& options = {});

}  // namespace swaplab::test
