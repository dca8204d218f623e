#include "experiments/options.hpp"

#include <filesystem>
#include <system_error>

#include "trace/error.hpp"

namespace po = boost::program_options;

namespace swaplab {

po::variables_map parse_options(const Arguments& arguments, const po::options_description& options,
                                const std::string& positional) {
  po::variables_map values;
  try {
    po::positional_options_description words;
    if (!positional.empty()) words.add(positional.c_str(), -1);
    using Style = po::command_line_style::style_t;
    const int style = static_cast<int>(Style::unix_style) & ~static_cast<int>(Style::allow_guessing);
    po::store(po::command_line_parser(arguments).options(options).positional(words).style(style).run(),
              values);
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
