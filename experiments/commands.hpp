// The commands of the program. Each takes its own arguments and returns an exit code; errors are thrown.
#pragma once

#include <string>
#include <vector>

namespace swaplab {

using Arguments = std::vector<std::string>;

enum ExitCode : int {
  kExitOk = 0,
  kExitVerdict = 1,  // `compare --fail-on`, `validate`
  kExitUsage = 2,
  kExitInput = 3,
  kExitOutput = 4,
  kExitPolicy = 5,
  kExitInvariant = 6,
};

int run_command(const Arguments& arguments);
int sweep_command(const Arguments& arguments);
int sweep_task_command(const Arguments& arguments);
int config_command(const Arguments& arguments);
int compare_command(const Arguments& arguments);
int sensitivity_command(const Arguments& arguments);
int report_command(const Arguments& arguments);
int timeline_command(const Arguments& arguments);
int trace_command(const Arguments& arguments);
int policies_command(const Arguments& arguments);
int machines_command(const Arguments& arguments);
int allocator_command(const Arguments& arguments);
int allocator_snapshot_command(const Arguments& arguments);
int check_schedule_command(const Arguments& arguments);
int plan_command(const Arguments& arguments);
int calibrate_command(const Arguments& arguments);
int validate_command(const Arguments& arguments);
int machine_diff_command(const Arguments& arguments);
// `swaplab trace ...`
int trace_info_command(const Arguments& arguments);
int trace_check_command(const Arguments& arguments);
int trace_convert_command(const Arguments& arguments);
int trace_import_command(const Arguments& arguments);
int trace_perturb_command(const Arguments& arguments);
int trace_diff_command(const Arguments& arguments);
int trace_analyze_command(const Arguments& arguments);
int trace_synth_command(const Arguments& arguments);

struct ImportReport;
struct ReadReport;
// A reader's warnings, on standard error.
void print_warnings(const ReadReport& report);

// What an import found, derived, misses and dropped, as text.
void print_import_report(const ImportReport& report);

// The first positional word must be one of `actions`; throws Error(usage) with a suggestion.
std::string take_action(Arguments& arguments, const std::string& command,
                        const std::vector<std::string>& actions);

}  // namespace swaplab
