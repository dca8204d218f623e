#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "experiments/commands.hpp"
#include "experiments/options.hpp"
#include "experiments/text.hpp"
#include "trace/diff.hpp"
#include "trace/error.hpp"
#include "trace/io.hpp"

namespace po = boost::program_options;

namespace swaplab {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHelp = R"(swaplab trace diff A B [--json]      iteration by iteration, first with first
swaplab trace diff A#3 B#4           one iteration of each, by number
swaplab trace diff A                 every iteration with the one before it

How far operator sequences differ. Edits are insertions, deletions and substitutions of operators, by name
and by signature (name, shapes, dtypes, integer attributes). Cosines compare histograms. Changed bytes: what
operators allocate, after alignment by name. The name cosine is blind to a changed sequence length.

example:
  swaplab trace diff configs/traces/gpt_varied.jsonl.gz
  swaplab trace diff before.jsonl.gz#3 after.jsonl.gz#4 --json

)";

struct Side {
  std::string file;
  std::int64_t number = -1;  // -1: all iterations
};

Side parse_side(const std::string& text) {
  const auto hash = text.rfind('#');
  if (hash == std::string::npos) return {text, -1};
  Side side{text.substr(0, hash), -1};
  const char* first = text.data() + hash + 1;
  const char* last = text.data() + text.size();
  const auto [rest, code] = std::from_chars(first, last, side.number);
  if (code != std::errc() || rest != last || first == last || side.number < 0) {
    throw Error(ErrorKind::usage, "'" + text + "': expected FILE#N with an iteration number N >= 0");
  }
  return side;
}

struct Pair {
  const Trace* a;
  const Trace* b;
  Iteration in_a, in_b;
};

// A trace without marks is one iteration.
std::vector<Iteration> iterations_of(const Trace& trace) {
  if (!trace.iterations.empty()) return trace.iterations;
  return {{0, IterationKind::train, false, 0, static_cast<std::uint32_t>(trace.ops.size())}};
}

Iteration find_iteration(const Trace& trace, const Side& side) {
  const std::vector<Iteration> all = iterations_of(trace);
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Iteration& i) { return i.number == side.number; });
  if (found == all.end()) {
    throw Error(ErrorKind::usage, side.file + " has no iteration " + std::to_string(side.number) +
                                      "; it has " + std::to_string(all.front().number) + " to " +
                                      std::to_string(all.back().number));
  }
  return *found;
}

std::string label(const Iteration& iteration) {
  return std::to_string(iteration.number) + (iteration.kind == IterationKind::validation ? " val"
                                             : iteration.step_skipped                    ? " skip"
                                                                                         : " train");
}

std::string ppm_text(std::int64_t ppm) {
  char text[32];
  std::snprintf(text, sizeof text, "%lld.%04lld", static_cast<long long>(ppm / 1'000'000),
                static_cast<long long>(ppm % 1'000'000 / 100));
  return text;
}

Json diff_json(const Pair& pair, const SequenceDiff& diff) {
  Json j;
  j["iteration_a"] = pair.in_a.number;
  j["iteration_b"] = pair.in_b.number;
  j["operators_a"] = diff.operators_a;
  j["operators_b"] = diff.operators_b;
  j["length_difference"] = diff.length_difference();
  j["name_edits"] = diff.name_edits;
  j["signature_edits"] = diff.signature_edits;
  j["name_cosine_ppm"] = diff.name_cosine_ppm;
  j["signature_cosine_ppm"] = diff.signature_cosine_ppm;
  j["changed_bytes"] = diff.changed_bytes.value;
  return j;
}

std::vector<Pair> make_pairs(const Side& first, const Side& second, bool one_file, const Trace& a,
                             const Trace& b) {
  std::vector<Pair> pairs;
  if (first.number >= 0 || second.number >= 0) {
    if (first.number < 0 || second.number < 0)
      throw Error(ErrorKind::usage, "give an iteration number on both sides (A#3 B#4) or on neither");
    pairs.push_back({&a, &b, find_iteration(a, first), find_iteration(b, second)});
    return pairs;
  }
  const std::vector<Iteration> in_a = iterations_of(a), in_b = iterations_of(b);
  const std::size_t shift = one_file ? 1 : 0;
  for (std::size_t i = 0; i < in_a.size() && i + shift < in_b.size(); ++i)
    pairs.push_back({&a, &b, in_a[i], in_b[i + shift]});
  if (pairs.empty())
    throw Error(ErrorKind::usage, "nothing to compare: " + first.file + " has only one iteration");
  return pairs;
}

}  // namespace

int trace_diff_command(const Arguments& arguments) {
  po::options_description options("options");
  options.add_options()("help,h", "this text")("json", "JSON instead of a table")(
      "file", po::value<std::vector<std::string>>(), "one or two traces (positional)");
  const po::variables_map values = parse_options(arguments, options, "file");
  if (values.count("help") != 0) {
    std::cout << kHelp << options;
    return kExitOk;
  }
  const auto files =
      values.count("file") != 0 ? values["file"].as<std::vector<std::string>>() : std::vector<std::string>{};
  if (files.empty() || files.size() > 2)
    throw Error(ErrorKind::usage, "swaplab trace diff needs one or two traces");
  const Side first = parse_side(files.front()), second = parse_side(files.back());
  const bool one_file = files.size() == 1;
  if (one_file && first.number >= 0)
    throw Error(ErrorKind::usage, "'" + files[0] + "' is one iteration; give a second one to compare with");
  const auto load = [](const std::string& file) {
    ReadReport report;
    Trace trace = read_trace(file, &report);
    print_warnings(report);
    return trace;
  };
  const Trace a = load(first.file);
  const Trace b = second.file == first.file ? a : load(second.file);
  const std::vector<Pair> pairs = make_pairs(first, second, one_file, a, b);
  Json all = Json::array();
  TextTable table({"a", "b", "operators a", "operators b", "length", "name edits", "sig edits", "cos names",
                   "cos sigs", "changed bytes"},
                  2);
  for (const Pair& pair : pairs) {
    const SequenceDiff diff =
        diff_operators(*pair.a, operators_of(pair.in_a), *pair.b, operators_of(pair.in_b));
    all.push_back(diff_json(pair, diff));
    const std::int64_t length = diff.length_difference();
    table.add({label(pair.in_a), label(pair.in_b), std::to_string(diff.operators_a),
               std::to_string(diff.operators_b), (length > 0 ? "+" : "") + std::to_string(length),
               std::to_string(diff.name_edits), std::to_string(diff.signature_edits),
               ppm_text(diff.name_cosine_ppm), ppm_text(diff.signature_cosine_ppm),
               human_bytes(diff.changed_bytes)});
  }
  if (values.count("json") != 0) {
    std::cout << Json{{"a", files.front()}, {"b", files.back()}, {"iterations", all}}.dump(1) << '\n';
  } else {
    std::fputs(table.text().c_str(), stdout);
    if (!one_file && first.number < 0 && iterations_of(a).size() != iterations_of(b).size()) {
      std::fprintf(stderr, "warning: %zu iterations in a, %zu in b; the surplus is not compared\n",
                   iterations_of(a).size(), iterations_of(b).size());
    }
  }
  return kExitOk;
}

}  // namespace swaplab
