#include "experiments/sweep/trace_source.hpp"

#include <unistd.h>

#include "trace/error.hpp"
#include "trace/extend.hpp"
#include "trace/io.hpp"

namespace swaplab {
namespace {

// One kind of source: how its text begins, what it reads and how the trace is made.
struct SourceKind {
  const char* prefix;  // "" matches the rest: plain files
  const char* summary;
  std::vector<std::string> (*files)(const std::string& source);
  bool (*uses_seed)(const std::string& source);
  Trace (*open)(const std::string& source, std::uint32_t iterations, std::uint64_t seed);
};

Trace open_file(const std::string& path, std::uint32_t iterations, std::uint64_t) {
  Trace trace = read_trace(path);
  return iterations > 0 ? extend_iterations(trace, iterations) : trace;
}

constexpr SourceKind kSources[] = {
    {"", "", [](const std::string& source) { return std::vector<std::string>{source}; },
     [](const std::string&) { return false; }, open_file},
};

const SourceKind& kind_of(const std::string& source) {
  for (const SourceKind& kind : kSources) {
    if (source.starts_with(kind.prefix)) return kind;
  }
  throw Error(ErrorKind::usage, "unknown kind of trace '" + source + "'");
}

}  // namespace

std::string read_trace_source(const ConfigPlace& place) {
  const std::string& text = place.text();
  for (const std::string& file : trace_source_files(text)) {
    if (::access(file.c_str(), R_OK) != 0) place.fail("trace '" + file + "' cannot be read");
  }
  return text;
}

std::string trace_source_summary() {
  std::string text;
  for (const SourceKind& kind : kSources) text += kind.summary;
  return text;
}

std::vector<std::string> trace_source_files(const std::string& source) {
  return kind_of(source).files(source);
}

bool trace_source_uses_seed(const std::string& source) {
  return kind_of(source).uses_seed(source);
}

std::shared_ptr<const Trace> open_trace_source(const std::string& source, std::uint32_t iterations,
                                               std::uint64_t seed) {
  return std::make_shared<const Trace>(kind_of(source).open(source, iterations, seed));
}

}  // namespace swaplab
