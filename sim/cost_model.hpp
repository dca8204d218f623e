// Device time of an operator that the trace did not time: a roofline with stated efficiencies.
#pragma once

#include "sim/machine.hpp"
#include "trace/model.hpp"

namespace swaplab {

// time = max(flop / (rate(dtype) * compute efficiency), (read + written) / (HBM * memory efficiency),
//            kernel floor), rounded up to a nanosecond; 0 for views and where FLOP and bytes are known to be
//            0
// (a bare allocation, which launches nothing).
// The number format is that of the signature's first floating-point input (else output, else fp32).
// float32 convolutions run at the TF32 rate and all other float32 operators at the FP32 rate, PyTorch's
// defaults; 8-bit floats count as fp16. A figure that is unknown beside a known one counts as nothing.
// Throws Error(input) when the signature has neither FLOP nor bytes, naming the operator.
Nanos model_device_time(const Trace& trace, SigId signature, const Machine& machine);

}  // namespace swaplab
