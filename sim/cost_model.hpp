// Device time of an operator that the trace did not time: a roofline with stated efficiencies.
#pragma once

#include "sim/machine.hpp"
#include "trace/model.hpp"

namespace swaplab {

// time = max(flop / (rate(dtype) * compute efficiency), (read + written) / (HBM * memory efficiency),
//            kernel floor), rounded up to a nanosecond; 0 for views.
// The number format is that of the signature's first floating-point input (else output).
// Throws Error(input) when the signature has neither FLOP nor bytes, naming the operator.
Nanos model_device_time(const Trace& trace, SigId signature, const Machine& machine);

}  // namespace swaplab
