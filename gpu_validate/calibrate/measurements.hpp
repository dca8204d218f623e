// What a probe measured on one device: raw samples by quantity and size (format swaplab-measurements 1).
//
//   {"format": "swaplab-measurements", "version": 1,
//    "device": {"name": "...", "driver": "...", "runtime": "...", "date": "2026-11-30", "kind": "cuda"},
//    "series": [{"quantity": "copy_h2d_pinned", "x": 1048576, "x_unit": "bytes", "samples_ns": [21034,
//    ...]}]}
//
// Every sample is kept: statistics can be redone, outliers can be looked at.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trace/units.hpp"

namespace swaplab {

// What x counts in a series.
enum class XUnit : std::uint8_t {
  bytes,
  flop,
  work,  // units of a surrogate kernel's work
  call,  // x = 1: a cost per call that has no size
};
std::string_view x_unit_name(XUnit unit);  // "bytes", "flop", "work", "call"

struct MeasuredQuantity {
  std::string name;  // "copy_h2d_pinned", ...; copy_p2p_I_J and allreduce_N stand for any numbers
  std::string meaning;
  bool bytes = false, flop = false, work = false, call = false;  // the units that x may have
  bool allows(XUnit unit) const;
};
// Every quantity that a file may hold.
const std::vector<MeasuredQuantity>& measured_quantities();
// Nothing for a name that no quantity has ("copy_p2p_0_1" is a copy_p2p_I_J).
std::optional<MeasuredQuantity> find_quantity(std::string_view name);

struct MeasuredSeries {
  std::string quantity;
  std::int64_t x = 0;
  XUnit unit = XUnit::call;
  std::vector<Nanos> samples;  // in the order measured; at least one
  std::size_t line = 0;        // of the file that it was read from; 0: of none
};

struct MeasuredDevice {
  std::string name, driver, runtime;
  std::string date;  // YYYY-MM-DD; "" for a published table that has none
  std::string kind;  // "cuda" or "host"
};

struct Measurements {
  std::string file;  // where it came from, for messages and sources
  MeasuredDevice device;
  std::vector<MeasuredSeries> series;
  // Made from a published table, not from a measurement file: what was published, in words.
  std::string published;
  std::vector<std::string> ignored;  // what the table holds beside the series, by its name there

  // Series of one quantity by increasing x.
  std::vector<const MeasuredSeries*> of(std::string_view quantity) const;
};

// Strict: an unknown or missing key, a wrong type, an unknown quantity (with "did you mean"), a unit that
// the quantity does not have, a negative time, no samples, a size given twice: one Error(input) naming
// file, line and JSON pointer, what was expected and what was found; for text that is no JSON line and byte.
Measurements parse_measurements(std::string_view text, const std::string& file);
// A file, also .gz or .zst.
Measurements read_measurements(const std::string& path);

// Whole content of a text file, decompressed. Throws Error(input).
std::string read_input_text(const std::string& path);

// One series per line. parse_measurements gives back the same.
std::string measurements_json(const Measurements& measurements);
// Atomic; compressed by extension. Checks what parse_measurements would refuse: Error(input).
void write_measurements(const std::string& path, const Measurements& measurements);

}  // namespace swaplab
