#include "experiments/options.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <thread>
#include <typeinfo>

#include "trace/error.hpp"
#include "trace/io.hpp"

namespace po = boost::program_options;

namespace swaplab {

namespace {

// Boost reads "-1" into an unsigned number as 4294967295.
void refuse_negative(const po::options_description& options, const po::option& given) {
  if (given.value.empty() || !given.value.front().starts_with("-")) return;
  const po::option_description* option = options.find_nothrow(given.string_key, false);
  if (option == nullptr) return;
  const auto* typed = dynamic_cast<const po::typed_value_base*>(option->semantic().get());
  if (typed == nullptr) return;
  const std::type_info& type = typed->value_type();
  if (type == typeid(unsigned) || type == typeid(std::size_t) || type == typeid(std::uint64_t))
    throw Error(ErrorKind::usage, "--" + given.string_key + ": '" + given.value.front() + "' is below zero");
}

}  // namespace

po::variables_map parse_options(const Arguments& arguments, const po::options_description& options,
                                const std::string& positional) {
  po::variables_map values;
  try {
    po::positional_options_description words;
    if (!positional.empty()) words.add(positional.c_str(), -1);
    using Style = po::command_line_style::style_t;
    const int style = static_cast<int>(Style::unix_style) & ~static_cast<int>(Style::allow_guessing);
    const po::parsed_options parsed =
        po::command_line_parser(arguments).options(options).positional(words).style(style).run();
    for (const po::option& option : parsed.options) refuse_negative(options, option);
    po::store(parsed, values);
    po::notify(values);
  } catch (const po::unknown_option& error) {
    std::vector<std::string> names;
    for (const auto& option : options.options()) names.push_back("--" + option->long_name());
    throw Error(ErrorKind::usage, "unknown option '" + error.get_option_name() + "'" +
                                      did_you_mean(error.get_option_name(), names));
  } catch (const po::error& error) {
    throw Error(ErrorKind::usage, error.what());
  }
  return values;
}

std::string take_action(Arguments& arguments, const std::string& command,
                        const std::vector<std::string>& actions) {
  std::string all;
  for (const std::string& action : actions) all += (all.empty() ? "" : "|") + action;
  if (arguments.empty()) throw Error(ErrorKind::usage, "swaplab " + command + " needs one of " + all);
  const std::string word = arguments.front();
  arguments.erase(arguments.begin());
  for (const std::string& action : actions) {
    if (action == word) return word;
  }
  throw Error(ErrorKind::usage, "unknown action '" + word + "' of 'swaplab" +
                                    (command.empty() ? "" : " " + command) + "'" +
                                    did_you_mean(word, actions) + "; expected " + all);
}

void check_output(const std::string& output, const std::vector<std::string>& inputs) {
  namespace fs = std::filesystem;
  std::error_code code;
  const fs::path path(output);
  if (fs::is_directory(path, code)) throw Error(ErrorKind::output, output + ": is a folder");
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, code))
    throw Error(ErrorKind::output, output + ": there is no folder " + folder.string());
  for (const std::string& input : inputs) {
    if (fs::equivalent(path, input, code) && !code)
      throw Error(ErrorKind::usage,
                  output + ": is read by this command, too, and would be lost; write to another file");
  }
}

void check_ending(const std::string& path, std::span<const std::string_view> endings) {
  std::string all;
  for (const std::string_view ending : endings) {
    if (path.size() > ending.size() && path.ends_with(ending)) return;
    all += (all.empty() ? "" : ending == endings.back() ? " or " : ", ") + std::string(ending);
  }
  throw Error(ErrorKind::usage, path + ": the name says the format and must end in " + all);
}

void check_trace_output(const std::string& output, const std::vector<std::string>& inputs) {
  check_ending(output, kTraceEndings);
  check_output(output, inputs);
}

unsigned jobs_of(const po::variables_map& values) {
  if (values.count("jobs") == 0) return std::max(1u, std::thread::hardware_concurrency());
  const unsigned jobs = values["jobs"].as<unsigned>();
  if (jobs < 1 || jobs > 4096)
    throw Error(ErrorKind::usage, "--jobs must be 1 to 4096, found " + std::to_string(jobs) +
                                      "; leave it out for one thread per processor");
  return jobs;
}

void refuse_repeats(const std::string& option, std::vector<std::string> values) {
  std::sort(values.begin(), values.end());
  const auto twice = std::adjacent_find(values.begin(), values.end());
  if (twice != values.end()) throw Error(ErrorKind::usage, option + ": '" + *twice + "' is listed twice");
}

std::vector<std::string> split_list(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t from = 0;
  while (from <= text.size()) {
    const std::size_t comma = std::min(text.find(separator, from), text.size());
    if (comma > from) parts.push_back(text.substr(from, comma - from));
    from = comma + 1;
  }
  return parts;
}

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
      return kExitUsage;
    case ErrorKind::input:
      return kExitInput;
    case ErrorKind::output:
      return kExitOutput;
    case ErrorKind::policy:
      return kExitPolicy;
    case ErrorKind::invariant:
      return kExitInvariant;
  }
  return kExitInvariant;
}

std::string printable(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n') || byte == 0x7f) {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace swaplab
