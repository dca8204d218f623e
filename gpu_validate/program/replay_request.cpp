#include "gpu_validate/program/replay_request.hpp"

#include <algorithm>
#include <iostream>

#include "experiments/options.hpp"
#include "sim/machine_io.hpp"
#include "trace/error.hpp"

namespace po = boost::program_options;

namespace swaplab {
namespace {

constexpr const char* kHelp = R"(swaplab-gpu replay: run swap policies on a real device

The executor of the simulator drives the device, so the decisions that 'swaplab run' scores are the decisions
that run here: real buffers at the addresses of PyTorch's allocator, real copies from and to pinned memory,
and for each operator a kernel that takes its time. Every storage's content is a function of storage and
version; kernels and swap-ins check what they find, so a race in a schedule is found, not only slow code.

Policies are interleaved in random order; each is repeated. 'error' is simulated over measured, less one, as in
'swaplab validate'. The last column says whether the decisions were those of the simulator, call by call.

examples:
  swaplab-gpu replay --trace configs/traces/gpt_small.jsonl.gz --policy none,lru,foresight --budget 0.6x
  swaplab-gpu replay --trace a.jsonl.gz,b.jsonl.gz --policy lru,foresight --budget 0.5x,0.7x \
                     --machine measured.yaml --repeats 5 --output measured.jsonl
  swaplab-gpu replay --trace gpt.jsonl.gz --policy lru --budget 0.6x --device host --time-scale 50
  swaplab validate --measured measured.jsonl --machine measured.yaml

)";

std::int64_t in_range(const po::variables_map& values, const char* name, std::int64_t low,
                      std::int64_t high) {
  const std::int64_t n = values[name].as<std::int64_t>();
  if (n < low || n > high)
    throw Error(ErrorKind::usage, std::string("--") + name + " must be " + std::to_string(low) + " to " +
                                      std::to_string(high) + ", found " + std::to_string(n));
  return n;
}

// "1/64"; 0 for "auto".
std::int64_t parse_bytes_scale(const std::string& text) {
  if (text == "auto") return 0;
  for (std::int64_t n = 1; n <= 64; n *= 2) {
    if (text == "1/" + std::to_string(n) || (n == 1 && text == "1")) return n;
  }
  throw Error(ErrorKind::usage, "--bytes-scale must be auto, 1, 1/2, 1/4, ... or 1/64, found '" + text + "'");
}

std::uint32_t parse_verify(const std::string& text) {
  if (text == "all") return 1;
  if (text == "off") return 0;
  std::int64_t n = 0;
  if (!parse_integer(text, 1, 1'000'000, n).empty())
    throw Error(ErrorKind::usage,
                "--verify must be all, off or N (every N-th word, 1 to 1000000), found '" + text + "'");
  return static_cast<std::uint32_t>(n);
}

KernelKind parse_kind(const std::string& text) {
  std::vector<std::string> names;
  for (const KernelKind kind : {KernelKind::spin, KernelKind::compute, KernelKind::memory}) {
    names.emplace_back(kernel_kind_name(kind));
    if (names.back() == text) return kind;
  }
  throw Error(ErrorKind::usage, "unknown kind of kernel '" + text + "'" + did_you_mean(text, names) +
                                    "; expected spin, compute or memory");
}

// "auto", "spin", or "matmul=compute,elementwise=memory" on top of spin.
std::array<KernelKind, kOpClassCount> parse_kernels(const std::string& text) {
  std::array<KernelKind, kOpClassCount> kinds{};
  if (text == "auto") {
    kinds.fill(KernelKind::memory);
    for (const OpClass cls : {OpClass::matmul, OpClass::attention, OpClass::convolution})
      kinds[static_cast<std::size_t>(cls)] = KernelKind::compute;
    kinds[static_cast<std::size_t>(OpClass::other)] = KernelKind::spin;
    return kinds;
  }
  std::vector<std::string> classes;
  for (std::size_t c = 0; c < kOpClassCount; ++c)
    classes.emplace_back(op_class_name(static_cast<OpClass>(c)));
  for (const std::string& part : split_list(text)) {
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos) {
      kinds.fill(parse_kind(part));
      continue;
    }
    const std::string name = part.substr(0, equals);
    const auto found = std::find(classes.begin(), classes.end(), name);
    if (found == classes.end())
      throw Error(ErrorKind::usage, "unknown operator class '" + name + "'" + did_you_mean(name, classes));
    kinds[static_cast<std::size_t>(found - classes.begin())] = parse_kind(part.substr(equals + 1));
  }
  return kinds;
}

ReplayRequest request_of(const po::variables_map& values) {
  ReplayRequest request;
  if (values.count("trace") == 0) throw Error(ErrorKind::usage, "replay needs --trace FILE");
  if (values.count("policy") == 0)
    throw Error(ErrorKind::usage, "replay needs --policy NAME (see 'swaplab policies list')");
  for (const std::string& list : values["trace"].as<std::vector<std::string>>()) {
    for (const std::string& path : split_list(list)) request.traces.push_back(path);
  }
  if (request.traces.empty()) throw Error(ErrorKind::usage, "--trace names no file");
  request.policies = parse_policies(values["policy"].as<std::string>());
  request.budgets = parse_budgets(values["budget"].as<std::string>());
  request.machine_name = values["machine"].as<std::string>();
  request.machine = load_machine(request.machine_name);
  if (values.count("times") != 0) {
    request.times = values["times"].as<std::string>();
    if (request.times != "trace" && request.times != "model")
      throw Error(ErrorKind::usage, "--times must be trace or model, found '" + request.times + "'");
    request.settings.times = request.times == "trace" ? TimeSource::trace : TimeSource::model;
  }
  const std::string conf = values["alloc-conf"].as<std::string>();
  if (!conf.empty()) request.alloc_conf = conf;
  request.settings.allocator_config = parse_alloc_conf(conf);
  require_supported(request.settings.allocator_config);
  request.iterations = static_cast<std::uint32_t>(in_range(values, "iterations", 1, 100'000));
  request.warmup = static_cast<std::uint32_t>(in_range(values, "warmup", 0, 100'000));
  if (request.warmup >= request.iterations)
    throw Error(ErrorKind::usage, "--warmup must be less than --iterations");
  request.repeats = in_range(values, "repeats", 1, 10'000);
  request.seed = static_cast<std::uint64_t>(in_range(values, "seed", 0, std::int64_t{1} << 62));
  const std::string order = values["order"].as<std::string>();
  if (order != "random" && order != "given")
    throw Error(ErrorKind::usage, "--order must be random or given, found '" + order + "'");
  request.random_order = order == "random";
  request.bytes_divisor = parse_bytes_scale(values["bytes-scale"].as<std::string>());
  const std::string scale = values["time-scale"].as<std::string>();
  const std::string problem = parse_fraction(scale, 1, 100 * kUnchanged, request.device.time_scale);
  if (!problem.empty()) throw Error(ErrorKind::usage, "--time-scale '" + scale + "': " + problem);
  request.device.verify_stride = parse_verify(values["verify"].as<std::string>());
  request.device.kinds = parse_kernels(values["kernels"].as<std::string>());
  request.device.memory = parse_memory_mode(values["memory"].as<std::string>());
  request.device.stretch_copies = values.count("fast-copies") == 0;
  request.device_name = values["device"].as<std::string>();
  request.json = values.count("json") != 0;
  if (values.count("output") != 0) {
    request.output = values["output"].as<std::string>();
    check_output(request.output, request.traces);
  }
  return request;
}

}  // namespace

std::optional<ReplayRequest> read_replay_request(const Arguments& arguments) {
  po::options_description options("options");
  options.add_options()("help,h", "this text")("trace", po::value<std::vector<std::string>>()->composing(),
                                               "trace files, comma-separated or repeated")(
      "policy", po::value<std::string>(), "policies: NAME[:param=value,...][,NAME...]")(
      "budget", po::value<std::string>()->default_value("0.6x"),
      "device memory: 0.5x of the trace's own peak, 16GiB, or inf; comma-separated")(
      "device", po::value<std::string>()->default_value("cuda"), "cuda, cuda:N or host")(
      "machine", po::value<std::string>()->default_value("h100-pcie5"),
      "profile that planners see and that the simulation beside it uses; name or file")(
      "times", po::value<std::string>(),
      "kernel times: trace | model (default: trace for GPU recordings, else model)")(
      "iterations", po::value<std::int64_t>()->default_value(6), "length of a replay, as in 'swaplab run'")(
      "warmup", po::value<std::int64_t>()->default_value(1),
      "iterations at its start that are not measured (the last one never is)")(
      "repeats", po::value<std::int64_t>()->default_value(3), "replays of each policy")(
      "order", po::value<std::string>()->default_value("random"),
      "random: interleaved, shuffled each round | given")("seed", po::value<std::int64_t>()->default_value(1),
                                                          "of the random order")(
      "memory", po::value<std::string>()->default_value("reservation"),
      "reservation (our allocator in one block) | malloc-async | vmm (CUDA only)")(
      "kernels", po::value<std::string>()->default_value("auto"),
      "what occupies the device: auto (by operator class) | spin | compute | memory | CLASS=KIND,...")(
      "verify", po::value<std::string>()->default_value("all"), "all | N: every N-th word | off")(
      "bytes-scale", po::value<std::string>()->default_value("auto"),
      "real : simulated bytes, 1 to 1/64 (auto: 1; on the host device as little as keeps it under 512 MiB)")(
      "time-scale", po::value<std::string>()->default_value("1"),
      "real : trace time of kernels, host work and stretched copies; results are divided by it")(
      "fast-copies", "host device: copies as fast as memory allows, not stretched to the profile's time")(
      "alloc-conf", po::value<std::string>()->default_value(""),
      "PYTORCH_CUDA_ALLOC_CONF of the caching allocator")(
      "output,o", po::value<std::string>(), "results file (JSON lines), rewritten after each replay")(
      "json", "one JSON document instead of tables");
  const po::variables_map values = parse_options(arguments, options, "trace");
  if (values.count("help") == 0) return request_of(values);
  std::cout << kHelp << options;
  return std::nullopt;
}

}  // namespace swaplab
