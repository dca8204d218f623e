// The texts of one profiler event (private to kineto_events.cpp).
#pragma once

#include <cstdint>
#include <string>

namespace swaplab::kineto {

// One event as it stands in the file; reused, so that nothing is allocated per event.
struct Raw {
  std::string ph, cat, name, pid, tid, id;
  std::string ts, dur, dims, types;
  std::string correlation, external, stream, device, address, bytes, total, device_type, device_id, index,
      record, sequence, forward_thread, collective, message, dtype;
  bool has_cat = false, has_ts = false, has_args = false;
  std::int64_t non_finite = 0;

  void clear() {
    for (std::string* s : {&ph,
                           &cat,
                           &name,
                           &pid,
                           &tid,
                           &id,
                           &ts,
                           &dur,
                           &dims,
                           &types,
                           &correlation,
                           &external,
                           &stream,
                           &device,
                           &address,
                           &bytes,
                           &total,
                           &device_type,
                           &device_id,
                           &index,
                           &record,
                           &sequence,
                           &forward_thread,
                           &collective,
                           &message,
                           &dtype})
      s->clear();
    has_cat = has_ts = has_args = false;
    non_finite = 0;
  }
};

}  // namespace swaplab::kineto
