#include <iostream>
#include <nlohmann/json.hpp>

#include "experiments/commands.hpp"
#include "experiments/options.hpp"
#include "experiments/text.hpp"
#include "trace/error.hpp"
#include "trace/import/import.hpp"

namespace po = boost::program_options;

namespace swaplab {
namespace {

// Names out of a file reach a terminal without control characters, and cannot pass for lines of the report.
std::string one_line(std::string_view text) {
  std::string line = printable(text);
  for (std::size_t at = 0; (at = line.find('\n', at)) != std::string::npos;) line.replace(at, 1, "\\x0a");
  return line;
}

// The amount for people behind a count of bytes or ns, by what it counts: " (6.85 ms)".
std::string readable(std::string_view what, std::int64_t count) {
  std::string text;
  if (what.ends_with("_bytes")) text = human_bytes(Bytes{count});
  if (what.ends_with("_ns") || what.ends_with(", ns")) text = human_time(Nanos{count});
  return text.empty() ? text : " (" + text + ")";
}

// "swaplab trace import FILE..." as a person would repeat it.
std::string command_again(const po::variables_map& values) {
  std::string text = "swaplab trace import";
  for (const std::string& file : values["file"].as<std::vector<std::string>>()) text += " " + file;
  const std::string from = values["from"].as<std::string>();
  return from.empty() ? text : text + " --from " + from;
}

void print_notes(const char* title, const std::vector<ImportNote>& notes) {
  for (std::size_t i = 0; i < notes.size(); ++i) {
    std::printf("  %-9s %12lld  %s%s: %s\n", i == 0 ? title : "", static_cast<long long>(notes[i].count),
                one_line(notes[i].what).c_str(), readable(notes[i].what, notes[i].count).c_str(),
                one_line(notes[i].how).c_str());
  }
}

}  // namespace

void print_import_report(const ImportReport& r) {
  for (const std::string& file : r.files) std::printf("%s\n", one_line(file).c_str());
  std::printf("  format    %s (%s)\n  studies   %s: %s\n", r.format.c_str(), one_line(r.version).c_str(),
              std::string(study_name(r.study)).c_str(), one_line(r.study_reason).c_str());
  for (std::size_t i = 0; i < r.found.size(); ++i) {
    if (r.found[i].second == 0) continue;
    std::printf("  %-9s %12lld  %s%s\n", i == 0 ? "found" : "", static_cast<long long>(r.found[i].second),
                one_line(r.found[i].first).c_str(), readable(r.found[i].first, r.found[i].second).c_str());
  }
  if (r.baseline.value >= 0)
    std::printf("  baseline  %12lld  bytes lived before (%s)\n", static_cast<long long>(r.baseline.value),
                human_bytes(r.baseline).c_str());
  print_notes("derived", r.derived);
  print_notes("dropped", r.dropped);
  print_notes("repaired", r.repaired);
  for (std::size_t i = 0; i < r.missing.size(); ++i)
    std::printf("  %-9s %12s  %s\n", i == 0 ? "missing" : "", "", one_line(r.missing[i]).c_str());
}

int trace_import_command(const Arguments& arguments) {
  po::options_description options("options");
  options.add_options()("help,h", "this text")(
      "output,o", po::value<std::string>(),
      "trace to write; format by extension (.swt, .jsonl, .jsonl.gz, .jsonl.zst)")(
      "from", po::value<std::string>()->default_value(""),
      "format of the first file (default: by its content)")("json", "the report, or the list, as JSON")(
      "list", "the formats")("file", po::value<std::vector<std::string>>(), "files (positional)");
  const po::variables_map values = parse_options(arguments, options, "file");
  if (values.count("help") != 0) {
    std::cout
        << "swaplab trace import FILE... [-o OUT] [--from FORMAT] [--json]\n\n"
           "Reads what other tools wrote and says what it holds, what was derived and how, what is\n"
           "missing, what was dropped, and which studies are possible. Several files are halves of one\n"
           "trace: an execution trace and its Kineto half, G10 kernels and their tables. Files may be "
           "plain,\n"
           "gzip or zstd; a format is recognised by content, never by name.\n"
           "\nexamples:\n"
           "  swaplab trace import profile.pt.trace.json.gz                 the report only\n"
           "  swaplab trace import snapshot.pickle -o snapshot.swt\n"
           "  swaplab trace import et.json kineto.json -o linked.swt        storages and times together\n"
           "  swaplab trace import kernels.config cudnnTime.txt cudnnWorkspace.txt -o g10.swt\n"
           "  swaplab trace import --list\n\n"
        << options;
    return kExitOk;
  }
  if (values.count("list") != 0) {
    if (values.count("json") != 0) {
      nlohmann::ordered_json list = nlohmann::ordered_json::array();
      for (const Importer* importer : importer_list()) {
        const ImporterInfo info = importer->info();
        list.push_back({{"format", info.name}, {"what", info.summary}, {"linked_with", info.companions}});
      }
      std::cout << list.dump(1) << '\n';
      return kExitOk;
    }
    TextTable table({"format", "what"}, 2);
    for (const Importer* importer : importer_list())
      table.add({std::string(importer->info().name), std::string(importer->info().summary)});
    std::cout << table.text();
    return kExitOk;
  }
  if (values.count("file") == 0) throw Error(ErrorKind::usage, "swaplab trace import needs a file");
  if (values.count("output") != 0)
    check_trace_output(values["output"].as<std::string>(), values["file"].as<std::vector<std::string>>());
  const ImportResult result =
      import_files(values["file"].as<std::vector<std::string>>(), values["from"].as<std::string>());
  if (values.count("json") != 0) {
    std::cout << report_json_text(result.report) << '\n';
  } else {
    print_import_report(result.report);
  }
  const bool text = values.count("json") == 0;
  if (values.count("output") == 0) {
    if (text && result.trace)
      std::printf("nothing was written; this writes the trace: %s -o OUT.swt\n",
                  one_line(command_again(values)).c_str());
    else if (text)
      std::printf("nothing was written: the file holds no trace\n");
    return kExitOk;
  }
  const std::string output = values["output"].as<std::string>();
  if (!result.trace)
    throw Error(ErrorKind::input,
                "there is no trace to write to " + output + ": " + result.report.study_reason);
  write_trace(*result.trace, output);
  if (text) std::printf("wrote %s\n", output.c_str());
  if (text && result.report.study == StudyKind::full)
    std::printf("next: swaplab run --trace %s --policy lru,foresight --budget 0.7x\n", output.c_str());
  return kExitOk;
}

}  // namespace swaplab
