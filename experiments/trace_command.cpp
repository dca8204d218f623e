#include <algorithm>
#include <cstdio>
#include <iterator>

#include "experiments/commands.hpp"
#include "trace/io.hpp"

namespace swaplab {
namespace {

struct TraceCommand {
  const char* name;
  int (*run)(const Arguments&);
  const char* summary;
};

// A new `swaplab trace` command is one file and one line here.
constexpr TraceCommand kTraceCommands[] = {
    {"info", trace_info_command, "what a trace holds"},
    {"check", trace_check_command, "replays liveness and verifies the end record"},
    {"convert", trace_convert_command, "writes it in another format, or continued to more iterations"},
    {"import", trace_import_command, "traces of other tools: what each holds and lacks"},
    {"perturb", trace_perturb_command, "changes of single iterations, with their ground truth"},
    {"analyze", trace_analyze_command,
     "live bytes, reuse, idle intervals, dependences: what it asks of memory"},
    {"diff", trace_diff_command, "how far the operators of two iterations differ"},
    {"synth", trace_synth_command, "makes one from a description of model, training loop and parallel job"},
};

}  // namespace

void print_warnings(const ReadReport& report) {
  for (const std::string& warning : report.warnings) std::fprintf(stderr, "warning: %s\n", warning.c_str());
}

int trace_command(const Arguments& given) {
  Arguments arguments = given;
  if (!arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h")) {
    std::puts("usage: swaplab trace COMMAND ...     (swaplab trace COMMAND --help teaches each)\n");
    for (const TraceCommand& c : kTraceCommands) std::printf("  %-10s %s\n", c.name, c.summary);
    return kExitOk;
  }
  std::vector<std::string> names;
  for (const TraceCommand& c : kTraceCommands) names.emplace_back(c.name);
  const std::string name = take_action(arguments, "trace", names);
  return std::find_if(std::begin(kTraceCommands), std::end(kTraceCommands),
                      [&](const TraceCommand& c) { return c.name == name; })
      ->run(arguments);
}

}  // namespace swaplab
