#include "experiments/sweep/trace_source.hpp"

#include <unistd.h>

#include "experiments/sweep/digest.hpp"
#include "trace/error.hpp"
#include "trace/extend.hpp"
#include "trace/io.hpp"
#include "trace/perturb/perturb.hpp"
#include "trace/synth/synth.hpp"

namespace swaplab {
namespace {

// "ORIGIN | perturbation | perturbation ...": where the trace comes from, then what is done to it, in order.
constexpr std::string_view kThen = " | ";
constexpr std::string_view kSynth = "synth:";

std::vector<std::string> split(const std::string& text, std::string_view separator) {
  std::vector<std::string> parts;
  std::size_t from = 0;
  while (true) {
    const std::size_t end = text.find(separator, from);
    parts.push_back(text.substr(from, end == std::string::npos ? std::string::npos : end - from));
    if (end == std::string::npos) return parts;
    from = end + separator.size();
  }
}

// "synth:WORKLOAD key=value key=value"
synth::WorkloadConfig workload_of(const std::string& text) {
  std::vector<std::string> words = split(text.substr(kSynth.size()), " ");
  const std::string name = words[0];
  words.erase(words.begin());
  return synth::load_workload(name, words);
}

// One kind of origin: how its text begins, what it depends on and how the trace is made.
struct Origin {
  std::string_view prefix;  // "" matches the rest: plain files
  std::string (*content_hash)(const std::string& text);
  bool (*uses_seed)(const std::string& text);
  Trace (*open)(const std::string& text, std::uint32_t iterations, std::uint64_t seed);
};

constexpr Origin kOrigins[] = {
    {kSynth, [](const std::string& text) { return sha256_hex(synth::workload_json(workload_of(text))); },
     // Only the routing of experts is random.
     [](const std::string& text) { return workload_of(text).model.experts.count > 0; },
     [](const std::string& text, std::uint32_t iterations, std::uint64_t seed) {
       synth::WorkloadConfig config = workload_of(text);
       config.seed = seed;
       if (iterations > 0) config.training.iterations = iterations;
       return synth::synthesize(config);
     }},
    {"", [](const std::string& text) { return sha256_file(text); }, [](const std::string&) { return false; },
     [](const std::string& text, std::uint32_t iterations, std::uint64_t) {
       Trace trace = read_trace(text);
       return iterations > 0 ? extend_iterations(trace, iterations) : trace;
     }},
};

const Origin& origin_of(const std::string& text) {
  for (const Origin& origin : kOrigins) {
    if (text.starts_with(origin.prefix)) return origin;
  }
  throw Error(ErrorKind::usage, "unknown kind of trace '" + text + "'");
}

}  // namespace

std::string read_trace_source(const ConfigPlace& place) {
  std::string text;
  if (place.node().kind == ConfigNode::Kind::map) {
    place.allow_only({"file", "synth", "set", "perturb"});
    if (place.has("file") == place.has("synth")) place.fail("needs either 'file' or 'synth'");
    if (place.has("set") && !place.has("synth")) place.fail("'set' changes a synthetic workload, not a file");
    text = place.has("file") ? place.key("file").text() : std::string(kSynth) + place.key("synth").text();
    if (place.has("set")) {
      for (const auto& [key, value] : place.key("set").entries()) text += " " + key + "=" + value.text();
    }
    if (place.has("perturb")) {
      for (const ConfigPlace& one : place.key("perturb").items()) text += std::string(kThen) + one.text();
    }
  } else {
    text = place.text();
  }
  const std::vector<std::string> parts = split(text, kThen);
  for (std::size_t i = 1; i < parts.size(); ++i) parse_perturbation(parts[i]);  // throws Error(usage)
  if (parts[0].starts_with(kSynth)) {
    try {
      workload_of(parts[0]);
    } catch (const Error& error) {
      place.fail(error.what());
    }
  } else if (::access(parts[0].c_str(), R_OK) != 0) {
    place.fail("trace '" + parts[0] + "' cannot be read");
  }
  return text;
}

std::string trace_source_summary() {
  return ", or {synth: WORKLOAD, set: {key: value}} ('swaplab trace synth --list'); either with "
         "perturb: [\"validation@every=3\", ...] ('swaplab trace perturb --list')";
}

std::string trace_source_origin(const std::string& source) {
  return split(source, kThen)[0];
}

std::string trace_source_hash(const std::string& source) {
  const std::string origin = trace_source_origin(source);
  return origin_of(origin).content_hash(origin);
}

bool trace_source_uses_seed(const std::string& source) {
  const std::vector<std::string> parts = split(source, kThen);
  return parts.size() > 1 || origin_of(parts[0]).uses_seed(parts[0]);
}

std::shared_ptr<const Trace> open_trace_source(const std::string& source, std::uint32_t iterations,
                                               std::uint64_t seed) {
  const std::vector<std::string> parts = split(source, kThen);
  Trace trace = origin_of(parts[0]).open(parts[0], iterations, seed);
  std::vector<PerturbationRequest> requests;
  for (std::size_t i = 1; i < parts.size(); ++i) requests.push_back(parse_perturbation(parts[i]));
  if (!requests.empty()) trace = perturb_trace(trace, requests, seed);
  return std::make_shared<const Trace>(std::move(trace));
}

}  // namespace swaplab
