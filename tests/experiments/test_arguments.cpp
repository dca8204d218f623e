// Wrong arguments are refused before any work, in one line that says what would be right.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "experiments/commands.hpp"
#include "tests/support/shared.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

std::string refusal(int (*command)(const Arguments&), const Arguments& arguments) {
  try {
    command(arguments);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    const std::string text = error.what();
    CHECK(text.find('\n') == std::string::npos);
    return text;
  }
  return "no error";
}

void check_refused(int (*command)(const Arguments&), const Arguments& arguments,
                   const std::string& expected) {
  const std::string text = refusal(command, arguments);
  CAPTURE(text);
  CAPTURE(expected);
  CHECK(text.find(expected) != std::string::npos);
}

const std::string kMissing = "there/is/no/such.jsonl";  // reading it would be another error

TEST_CASE("an unknown ending of an output is refused before anything is read") {
  const std::string known = "must end in .swt, .jsonl, .jsonl.gz or .jsonl.zst";
  check_refused(trace_import_command, {kMissing, "-o", "q.foo"}, known);
  check_refused(trace_convert_command, {kMissing, "-o", "q.json"}, known);
  check_refused(trace_perturb_command, {kMissing, "-o", "q", "--apply", "drift"}, known);
  check_refused(trace_synth_command, {"gpt-small", "-o", "q.txt"}, known);
  check_refused(trace_synth_command, {"gpt-small", "-o", ".swt"}, known);
  check_refused(run_command, {"--trace", kMissing, "--policy", "lru", "--schedule", "s.swt"},
                "must end in .jsonl, .jsonl.gz or .jsonl.zst");
}

TEST_CASE("threads are 1 to 4096") {
  const Arguments run{"--trace", kMissing, "--policy", "lru", "-j"};
  const auto with = [&](const char* jobs) {
    Arguments all = run;
    all.emplace_back(jobs);
    return all;
  };
  check_refused(run_command, with("0"), "--jobs must be 1 to 4096, found 0");
  check_refused(run_command, with("5000"), "--jobs must be 1 to 4096");
  check_refused(run_command, with("-1"), "'-1' is below zero");
  check_refused(run_command, with("two"), "'two'");
}

TEST_CASE("what is listed twice is refused") {
  const auto run = [](const char* option, const char* list) {
    Arguments arguments{"--trace", kMissing, "--policy", "lru", "--budget", "0.5x"};
    if (std::string(option) == "--policy") arguments = {"--trace", kMissing, "--budget", "0.5x"};
    if (std::string(option) == "--budget") arguments = {"--trace", kMissing, "--policy", "lru"};
    arguments.emplace_back(option);
    arguments.emplace_back(list);
    return arguments;
  };
  check_refused(run_command, run("--policy", "lru,size,lru"), "is listed twice");
  check_refused(run_command, run("--policy", "bound,lru,bound"), "'bound' is listed twice");
  check_refused(run_command, run("--budget", "0.5x,16GiB,0.5x"), "'0.5x' is listed twice");
  check_refused(run_command, run("--budget", "0.5x,0.50x"), "'0.50x' is listed twice: as '0.5x', too");
  check_refused(run_command, run("--budget", "1GiB,1024MiB"), "is listed twice");
  check_refused(run_command, run("--trace", kMissing.c_str()), "is listed twice");
  check_refused(run_command, run("--alloc-conf", "expandable_segments:True,expandable_segments:False"),
                "'expandable_segments' is given twice");
  check_refused(validate_command, {"--measured", kMissing, "--tolerance", "peak=1%,peak=2%"},
                "'peak' is listed twice");
}

TEST_CASE("unknown names suggest the nearest in one line") {
  check_refused(run_command, {"--trace", kMissing, "--policy", "lur"},
                "unknown policy 'lur' (did you mean 'lru'?); policies: adaptive, ");
  check_refused(trace_perturb_command, {kMissing, "-o", "q.swt", "--apply", "drfit"},
                "did you mean 'drift'?");
  check_refused(run_command, {"--trace", kMissing, "--policy", "lru", "--iterations", "-3"}, "1 to 1000000");
}

}  // namespace
}  // namespace swaplab
