// Published bandwidth tables as calibration data, recognised by their content:
//
// - nvbandwidth's output, text or JSON (matrices in GB/s; copies of 512 MiB, its default buffer),
// - bandwidthTest of the CUDA samples, as text or with --csv,
// - a Markdown table of GB/s whose head row is "Size" and whose rows are "H2D" and "D2H" (pinned),
// - an all-reduce table of NCCL tests (CSV with size(B), time(ns), busbw(GB/s)), as vTrain ships.
//
// GB is 10^9 bytes, kB and KB 10^3. Every figure becomes one sample of a series.
#pragma once

#include <string>
#include <string_view>

#include "gpu_validate/calibrate/measurements.hpp"

namespace swaplab {

// Throws Error(input) naming file and line: what is none of the above, or a number that is missing where
// one has to be. `file` is only for messages and the source text (its last part).
Measurements parse_published_table(std::string_view text, const std::string& file);

// A measurement file or a published table, whatever the file holds; also .gz or .zst. Throws Error(input).
Measurements read_calibration_data(const std::string& path);

}  // namespace swaplab
