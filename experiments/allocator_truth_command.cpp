// `swaplab allocator snapshot`: PyTorch's recorded allocations against the allocator of this project.
#include <iostream>
#include <nlohmann/json.hpp>

#include "experiments/commands.hpp"
#include "experiments/options.hpp"
#include "experiments/text.hpp"
#include "sim/allocator/snapshot_truth.hpp"
#include "trace/error.hpp"

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
  if (truth.first_difference.empty()) return text.empty() ? "complete history" : text;
  return (text.empty() ? "" : text + "; ") + truth.first_difference;
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
  TextTable table({"snapshot", "device", "allocations", "segments agree", "extra", "offsets agree",
                   "frees from before", "why"},
                  1);
  Json all = Json::array();
  for (const std::string& file : values["file"].as<std::vector<std::string>>()) {
    const TorchSnapshot snapshot = read_torch_snapshot(ImportInput::file(file));
    const std::vector<SnapshotTruth> devices = compare_with_snapshot(snapshot);
    if (devices.empty()) table.add({file, "-", "0", "0/0", "0", "0/0", "0", "no events"});
    for (const SnapshotTruth& t : devices) {
      table.add({file, std::to_string(t.device), std::to_string(t.allocations),
                 share(t.segments_agree, t.segments), std::to_string(t.segments_extra),
                 share(t.placed_agree, t.allocations), std::to_string(t.unmatched_frees), explanation(t)});
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
  std::cout << (values.count("json") != 0 ? all.dump(1) + "\n" : table.text());
  return kExitOk;
}

}  // namespace swaplab
