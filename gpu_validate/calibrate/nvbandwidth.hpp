// nvbandwidth's output, as text or JSON (-j): matrices in GB/s of copies of 512 MiB, its default buffer.
// Private to this folder.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gpu_validate/calibrate/measurements.hpp"

namespace swaplab {

// "host_to_device_memcpy_ce" of "Running host_to_device_memcpy_ce."; "" of any other line.
std::string_view nvbandwidth_test(std::string_view line);

// Copies to and from the device, alone and beside the other direction, within a device and between devices.
// Tests that say nothing about a profile (copies by kernels, latencies, several devices at once) are listed
// in `ignored`. Throws Error(input) with file and line.
Measurements nvbandwidth_text(const std::vector<std::string>& lines, const std::string& file);

bool is_nvbandwidth_json(std::string_view text);
// Throws Error(input) with file and test, and for text that is no JSON the byte.
Measurements nvbandwidth_json(std::string_view text, const std::string& file);

}  // namespace swaplab
