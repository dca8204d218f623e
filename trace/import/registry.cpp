#include <algorithm>
#include <new>

#include "trace/error.hpp"
#include "trace/human.hpp"
#include "trace/import/import.hpp"
#include "trace/named_registry.hpp"

namespace swaplab {
namespace {

// Filled by the registration objects of formats/, before main; constant afterwards.
NamedRegistry<Importer>& registered() {
  static NamedRegistry<Importer> registry("format", "formats");
  return registry;
}

bool lists(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const auto space = words.find(' ');
    if (words.substr(0, space) == word) return true;
    if (space == std::string_view::npos) return false;
    words.remove_prefix(space + 1);
  }
  return false;
}

const Importer& must_recognise(const ImportInput& input) {
  if (const Importer* importer = recognise(input)) return *importer;
  const std::string kind = foreign_kind(input.head());
  throw Error(ErrorKind::input,
              input.name() + ": " +
                  (kind.empty() ? "is in no format that swaplab knows (swaplab trace import "
                                  "--list names them)"
                                : "is " + kind));
}

struct Magic {
  std::string_view bytes;
  std::size_t offset;
  std::string_view kind;
};
using namespace std::string_view_literals;
constexpr Magic kForeign[] = {
    {"version https://git-lfs"sv, 0, "a Git LFS pointer, not the file itself: fetch it with 'git lfs pull'"},
    {"\x00\x05\x16\x07"sv, 0,
     "an AppleDouble file (macOS metadata), not a trace: take the file without '._'"},
    {"NVIDIA Tegra Profiler Report"sv, 0,
     "a binary Nsight Systems report: export it with 'nsys export --type sqlite'"},
    {"QDSTRM"sv, 0, "a binary Nsight Systems report: export it with 'nsys export --type sqlite'"},
    {"PK\x03\x04"sv, 0, "a zip archive: unpack it first"},
    {"ustar"sv, 257, "a tar archive: unpack it first"},
    {"BZh"sv, 0, "a bzip2 stream: decompress it first"},
    {"\xfd"
     "7zXZ"sv,
     0, "an xz stream: decompress it first"},
    {"\x7f"
     "ELF"sv,
     0, "a program"},
    {"\x89"
     "HDF"sv,
     0, "an HDF5 file"},
    {"%PDF"sv, 0, "a PDF document"},
    {"<?xml"sv, 0, "an XML document"},
    {"<!DOCTYPE"sv, 0, "an HTML page, perhaps a download that failed"},
    {"<html"sv, 0, "an HTML page, perhaps a download that failed"},
};

bool is_number(std::string_view line) {
  return !line.empty() && line.find_first_not_of("0123456789") == std::string_view::npos;
}

// Text formats of this field that hold no trace, each with what to do instead.
std::string foreign_text(std::string_view start) {
  const auto has = [&](std::string_view part) { return start.find(part) != std::string_view::npos; };
  std::string_view lines[3], rest = start;
  for (std::string_view& line : lines) {
    line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  }
  if (lines[0].rfind("size(B),", 0) == 0 && lines[0].find("busbw(GB/s)") != std::string_view::npos)
    return "a table of collective times (vTrain): calibration data for a machine, not a trace; read it with "
           "'swaplab calibrate'";
  if (has("bandwidth (GB/s)") && (has("memcpy CE ") || has("memcpy SM ")))
    return "output of nvbandwidth: calibration data for a machine, not a trace; read it with 'swaplab "
           "calibrate'";
  if (has("\"models\"") && has("\"has_start\"") && has("\"log\""))
    return "the manifest of a folder of DTR logs, not a log: import the logs that it names";
  const bool module = lines[0].size() > 1 && lines[0].back() == '(' && lines[1].rfind("  (", 0) == 0 &&
                      lines[1].find("): ") != std::string_view::npos;
  const bool operators = is_number(lines[0]) && is_number(lines[2]) && !lines[1].empty() &&
                         lines[1].find_first_not_of(
                             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                             "0123456789_") == std::string_view::npos;
  if (module || (operators && !is_number(lines[1])))
    return "a description of a network (layers, no times or sizes), from which G10's own tool makes "
           "kernels.config: import that";
  return "";
}

// Every error names a file: those of sums and of memory do not know which, so it is the leading one.
ImportResult named_errors(const Importer& importer, std::span<const ImportInput> inputs) {
  const auto prefix = inputs[0].name() + ": ";
  try {
    return importer.import(inputs);
  } catch (const Error& error) {
    const std::string_view text = error.what();
    for (const ImportInput& input : inputs) {
      if (text.substr(0, input.name().size()) == input.name()) throw;
    }
    throw Error(error.kind(), prefix + std::string(text));
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::input, prefix + "needs more memory than there is");
  }
}

// Whether this is the start of a trace in a format of swaplab's own (read_trace).
bool is_own_trace(std::string_view head) {
  const std::string_view start = head.substr(0, 4096);
  const std::string_view line = start.substr(0, start.find('\n'));
  return start.substr(0, 4) == "\x89SWT" || line.find("\"k\":") != std::string_view::npos ||
         line.find("\"k\" :") != std::string_view::npos;
}

// What a replay's time would hang on: a host call (a driver that starts, a library that loads or tunes)
// beside which the device's work is nothing. Columns of times are empty when no operator has one.
void note_long_host_calls(const Trace& trace, ImportReport& report) {
  const auto &device = trace.ops.device_time, &host = trace.ops.host_time;
  if (device.empty() || host.empty()) return;
  Nanos work{0};
  for (const Nanos time : device) work += std::max(time, Nanos{0});
  const auto calls = std::count_if(host.begin(), host.end(), [&](Nanos time) { return time > work; });
  if (work == Nanos{0} || calls == 0) return;
  const auto longest = static_cast<std::uint32_t>(std::max_element(host.begin(), host.end()) - host.begin());
  report.derive("host calls longer than all device work", calls,
                "replayed as recorded, the longest " + exact_time(host[longest]) + " in operator " +
                    std::to_string(longest) + " " + std::string(trace.op_name(longest)) +
                    ": as a rule something that starts once; record later iterations");
}

}  // namespace

void register_importer(const Importer* importer) {
  registered().add(importer);
}

std::vector<const Importer*> importer_list() {
  return registered().list();
}

const Importer* recognise(const ImportInput& input) {
  const Importer* found = nullptr;
  for (const Importer* importer : importer_list()) {
    if (!importer->recognises(input.head())) continue;
    if (found != nullptr)
      throw Error(ErrorKind::input, input.name() + ": could be " + std::string(found->info().name) + " or " +
                                        std::string(importer->info().name) + "; say which with --from");
    found = importer;
  }
  return found;
}

std::string foreign_kind(std::string_view head) {
  for (const Magic& magic : kForeign) {
    if (head.size() >= magic.offset + magic.bytes.size() &&
        head.substr(magic.offset, magic.bytes.size()) == magic.bytes)
      return std::string(magic.kind);
  }
  if (is_own_trace(head)) return "a swaplab trace already: use it with 'swaplab run --trace'";
  const std::string_view start = head.substr(0, 4096);
  if (start.find("XPlane") != std::string_view::npos || start.find("/host:") != std::string_view::npos ||
      start.find("/device:") != std::string_view::npos)
    return "an XPlane protobuf of the TensorFlow / JAX profiler, which carries no storages: not supported";
  if (const std::string kind = foreign_text(start); !kind.empty()) return kind;
  if (start.find('\0') != std::string_view::npos || (!head.empty() && head[0] == '\x80'))
    return "binary data in no format that swaplab knows";
  const auto first = head.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && (head[first] == '{' || head[first] == '['))
    return "JSON, but neither a profile ('traceEvents', or events with 'ph') nor another known trace";
  return "";
}

ImportResult import_trace(std::span<const ImportInput> inputs, std::string_view from) {
  if (inputs.empty()) throw Error(ErrorKind::usage, "nothing to import");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (inputs[i].name() == inputs[j].name() && !inputs[i].name().empty() && !inputs[i].in_memory())
        throw Error(ErrorKind::usage, inputs[i].name() + ": given twice");
    }
  }
  std::vector<const Importer*> kinds;
  for (const ImportInput& input : inputs) {
    kinds.push_back(kinds.empty() && !from.empty() ? &registered().find(from) : &must_recognise(input));
  }
  // The file that can be linked with all the others leads.
  for (std::size_t lead = 0; lead < inputs.size(); ++lead) {
    bool fits = true;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      fits &= i == lead || lists(kinds[lead]->info().companions, kinds[i]->info().name);
    if (!fits) continue;
    std::vector<ImportInput> ordered{inputs[lead]};
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (i != lead) ordered.push_back(inputs[i]);
    }
    ImportResult result = named_errors(*kinds[lead], ordered);
    result.report.format = std::string(kinds[lead]->info().name);
    for (const ImportInput& input : ordered) result.report.files.push_back(input.name());
    // So that a replay can say later what the trace cannot tell.
    if (result.trace) {
      result.trace->header.extra_json = study_header(result.report.study);
      note_long_host_calls(*result.trace, result.report);
    }
    return result;
  }
  std::string what;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    what += (i == 0 ? "" : ", ") + inputs[i].name() + " (" + std::string(kinds[i]->info().name) + ")";
  throw Error(ErrorKind::usage, "these files do not belong to one trace: " + what);
}

ImportResult import_files(const std::vector<std::string>& paths, std::string_view from) {
  std::vector<ImportInput> inputs;
  inputs.reserve(paths.size());
  for (const std::string& path : paths) inputs.push_back(ImportInput::file(path));
  return import_trace(inputs, from);
}

Trace read_any_trace(const std::string& path, ReadReport* read, ImportReport* report) {
  const ImportInput input = ImportInput::file(path);
  if (is_own_trace(input.head()) && recognise(input) == nullptr) return read_trace(path, read);
  ImportResult result = import_trace(std::span(&input, 1));
  if (read != nullptr) read->format = result.report.format;
  if (report != nullptr) *report = result.report;
  if (!result.trace)
    throw Error(ErrorKind::input,
                path + ": " + result.report.format + " without a trace: " + result.report.study_reason);
  return std::move(*result.trace);
}

}  // namespace swaplab
