// `swaplab allocator replay`: what the caching allocator does with a log of requests.
#include <fstream>
#include <iostream>

#include "experiments/commands.hpp"
#include "experiments/options.hpp"
#include "policy/policy.hpp"
#include "sim/allocator/replay.hpp"
#include "trace/error.hpp"

namespace po = boost::program_options;

namespace swaplab {
namespace {

constexpr const char* kHelp =
    R"(swaplab allocator replay REQUESTS [--conf "expandable_segments:True"] [--capacity 16GiB] [--summary]
swaplab allocator snapshot FILE...     how far PyTorch's own snapshots agree (--help)

Runs a log of requests through PyTorch's caching allocator on a device that only counts, and prints what each
request did. REQUESTS holds one request a line; '#' begins a comment, an ID is used once:
  m ID SIZE STREAM    allocate SIZE bytes            f ID          free
  r ID STREAM         record_stream                  e             empty_cache
  c STREAM N          N oldest events of STREAM complete           z   all events so far complete

example:
  printf 'm 1 1000000 0\nm 2 3000000 0\nf 1\ne\n' > log.req
  swaplab allocator replay log.req --conf expandable_segments:True

)";

constexpr const char* kLegend =
    R"(what the lines mean (sizes in bytes, addresses hexadecimal):
  N REQUEST = RESULT EVENTS | ALLOCATED RESERVED ACTIVE INACTIVE_SPLIT     one for each request
    RESULT          address; OOM; 0 (nothing asked); - (no value); skip (that ID is not live); ERR (internal assertion)
    EVENTS          +A -A segment by cudaMalloc, cudaFree; +M -M range mapped, unmapped; +V -V addresses reserved,
                    freed, each :ADDRESS:SIZE[:STREAM]; !A !M failed, :SIZE; ~ADDRESS a deferred free was done
    ALLOCATED       in use by requests, rounded up; RESERVED: taken from the device
    ACTIVE          allocated, or freed while another stream still uses it
    INACTIVE_SPLIT  free parts of segments that are partly in use (fragmentation)
  @ N ...           after N requests: checksums of results (ra), events (re), statistics (rs) and block map (st); the
                    four sums above; retries and ooms; nseg segments, nblk blocks
  S ADDRESS SIZE sSTREAM POOL: BLOCKS     a segment at the end; blocks are A allocated, P pending, F free
  stat NAME all: small: large:            current/peak/allocated in total/freed in total, by pool
  count, stub       events of the allocator, calls that the device saw; end N: complete, N requests
)";

// The legend as comment lines of the output.
void print_legend() {
  std::string_view rest = kLegend;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n') + 1;
    std::cout << "# " << rest.substr(0, end);
    rest.remove_prefix(end);
  }
}

}  // namespace

int allocator_command(const Arguments& given) {
  Arguments arguments = given;
  const std::string action = take_action(arguments, "allocator", {"replay", "snapshot", "--help"});
  if (action == "snapshot") return allocator_snapshot_command(arguments);
  po::options_description options("options");
  options.add_options()("help,h", "this text")("conf", po::value<std::string>()->default_value(""),
                                               "PYTORCH_CUDA_ALLOC_CONF")(
      "capacity", po::value<std::string>()->default_value("1024GiB"),
      "device memory in bytes (1099511627776) or with a unit")(
      "fraction", po::value<double>()->default_value(0), "memory fraction, 0 = none")(
      "summary", "lines for the first 2000 requests, checkpoints every 1000, no block map")(
      "no-legend", "leave the explanation of the lines out")("file", po::value<std::string>(),
                                                             "request log (positional)");
  const po::variables_map values = parse_options(arguments, options, "file");
  if (action == "--help" || values.count("help") != 0) {
    std::cout << kHelp << options << '\n' << kLegend;
    return kExitOk;
  }
  if (values.count("file") == 0)
    throw Error(ErrorKind::usage, "swaplab allocator replay needs a request log");
  const std::string path = values["file"].as<std::string>();
  std::ifstream in(path);
  if (!in) throw Error(ErrorKind::input, path + ": cannot open");
  ReplayOptions replay;
  replay.request_name = path;
  replay.conf = values["conf"].as<std::string>();
  replay.fraction = values["fraction"].as<double>();
  Bytes capacity;
  std::string text = values["capacity"].as<std::string>();
  if (text.find_first_not_of("0123456789") == std::string::npos) text += "B";
  const std::string wrong = parse_bytes(text, capacity);
  if (!wrong.empty()) throw Error(ErrorKind::usage, "--capacity: " + wrong);
  replay.capacity = static_cast<std::uint64_t>(capacity.value);
  if (values.count("summary") != 0) replay.summarise();
  if (values.count("no-legend") == 0) print_legend();
  replay_requests(in, replay, std::cout);
  return kExitOk;
}

}  // namespace swaplab
