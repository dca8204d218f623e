// `swaplab allocator snapshot`: PyTorch's recorded allocations against the allocator of this project.
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "experiments/commands.hpp"
#include "experiments/options.hpp"
#include "experiments/text.hpp"
#include "sim/allocator/snapshot_truth.hpp"
#include "trace/error.hpp"
#include "trace/import/import.hpp"

namespace po = boost::program_options;

namespace swaplab {
namespace {

using Json = nlohmann::ordered_json;

std::string share(std::uint64_t part, std::uint64_t whole) {
  return std::to_string(part) + "/" + std::to_string(whole);
}

std::string explanation(const SnapshotTruth& truth) {
  std::string text;
  for (const std::string& reason : truth.reasons) text += (text.empty() ? "" : "; ") + reason;
  if (text.empty() && truth.first_difference.empty()) text = "complete history";
  if (truth.segments == 0 && truth.allocations != 0)
    text += (text.empty() ? "" : "; ") + std::string("no new segments in the history");
  if (truth.first_difference.empty()) return text;
  return (text.empty() ? "" : text + "; ") + truth.first_difference;
}

// A pickle is left to its reader, whose message names the byte; anything else is named for what it is.
TorchSnapshot read_snapshot(const std::string& file) {
  const ImportInput input = ImportInput::file(file);
  if (input.head().front() == '\x80') return read_torch_snapshot(input);
  std::string kind;
  if (const Importer* importer = recognise(input))
    kind = "a " + std::string(importer->info().name) + " trace ('swaplab trace import' reads it)";
  else
    kind = foreign_kind(input.head());
  throw Error(ErrorKind::input, file + ": is " + (kind.empty() ? "" : kind + ", ") +
                                    "not a memory snapshot (the pickle of "
                                    "torch.cuda.memory._dump_snapshot)");
}

}  // namespace

int allocator_snapshot_command(const Arguments& arguments) {
  po::options_description options("options");
  options.add_options()("help,h", "this text")("json", "JSON instead of a table")(
      "file", po::value<std::vector<std::string>>(), "memory snapshots (positional)");
  const po::variables_map values = parse_options(arguments, options, "file");
  if (values.count("help") != 0) {
    std::cout
        << "swaplab allocator snapshot FILE... [--json]\n\n"
           "Replays the requests of CUDA memory snapshots through the caching allocator and counts where it\n"
           "agrees with PyTorch: segments by order and size, blocks by segment and offset. A history that\n"
           "starts late is replayed from the segments and blocks that it started with, rebuilt from the\n"
           "block map at the dump by undoing the history.\n"
           "\nexample:\n  swaplab allocator snapshot snapshot.pickle\n\n"
        << options;
    return kExitOk;
  }
  if (values.count("file") == 0) throw Error(ErrorKind::usage, "swaplab allocator snapshot needs a snapshot");
  TextTable table(
      {"snapshot", "device", "allocations", "segments agree", "extra", "offsets agree", "frees from before"},
      1);
  // The explanations are sentences: they stand behind the table, whose lines are equally long.
  std::vector<std::string> why{"why"};
  Json all = Json::array();
  for (const std::string& file : values["file"].as<std::vector<std::string>>()) {
    const TorchSnapshot snapshot = read_snapshot(file);
    const std::vector<SnapshotTruth> devices = compare_with_snapshot(snapshot);
    if (devices.empty()) {
      why.emplace_back("no events");
      table.add({file, "-", "0", "0/0", "0", "0/0", "0"});
    }
    for (const SnapshotTruth& t : devices) {
      table.add({file, std::to_string(t.device), std::to_string(t.allocations),
                 share(t.segments_agree, t.segments), std::to_string(t.segments_extra),
                 share(t.placed_agree, t.allocations), std::to_string(t.unmatched_frees)});
      why.push_back(explanation(t));
      Json j;
      j["file"] = file;
      j["device"] = t.device;
      j["complete_history"] = t.complete;
      j["start_rebuilt"] = t.rebuilt;
      j["start_segments"] = t.start_segments;
      j["start_blocks"] = t.start_blocks;
      j["start_bytes"] = t.start_bytes;
      j["agrees"] = t.agrees();
      j["allocations"] = t.allocations;
      j["segments"] = t.segments;
      j["segments_agree"] = t.segments_agree;
      j["segments_extra"] = t.segments_extra;
      j["allocations_in_known_segments"] = t.placed;
      j["offsets_agree"] = t.placed_agree;
      j["unmatched_frees"] = t.unmatched_frees;
      j["first_difference"] = t.first_difference;
      j["reasons"] = t.reasons;
      all.push_back(std::move(j));
    }
  }
  if (values.count("json") != 0) {
    std::cout << all.dump(1) << '\n';
    return kExitOk;
  }
  std::istringstream lines(table.text());
  std::string line;
  for (std::size_t i = 0; std::getline(lines, line); ++i) std::cout << line << "  " << why.at(i) << '\n';
  return kExitOk;
}

}  // namespace swaplab
