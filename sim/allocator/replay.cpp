#include "sim/allocator/replay.hpp"

#include <charconv>
#include <cstdio>
#include <istream>
#include <optional>
#include <ostream>
#include <unordered_map>

#include "sim/allocator/caching_allocator.hpp"
#include "sim/allocator/stub_device.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

using Kind = AllocRequest::Kind;
using LogKind = StubDevice::LogKind;

// Splits one line into its fields and numbers, with errors that name the line.
class LineReader {
 public:
  LineReader(std::string_view line, const std::string& name, std::uint64_t number)
      : rest_(line), name_(name), number_(number) {}

  [[noreturn]] void fail(const std::string& message) const {
    throw Error(ErrorKind::input, name_ + ":" + std::to_string(number_) + ": " + message);
  }
  std::string_view word(const char* what) {
    const std::size_t start = rest_.find_first_not_of(' ');
    if (start == std::string_view::npos) fail(std::string("expected ") + what + ", got the end of the line");
    const std::size_t end = std::min(rest_.find(' ', start), rest_.size());
    const std::string_view found = rest_.substr(start, end - start);
    rest_ = rest_.substr(end);
    return found;
  }
  std::uint64_t number(const char* what, std::uint64_t below) {
    const std::string_view text = word(what);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value >= below) {
      fail("expected " + std::string(what) + " as a whole number below " + std::to_string(below) + ", got '" +
           std::string(text) + "'");
    }
    return value;
  }
  std::uint32_t stream() { return static_cast<std::uint32_t>(number("a stream", kMaxAllocatorStreams)); }
  void finish() const {
    if (rest_.find_first_not_of(' ') != std::string_view::npos) {
      fail("expected the end of the line, got '" + std::string(rest_) + "'");
    }
  }

 private:
  std::string_view rest_;
  const std::string& name_;
  std::uint64_t number_;
};

// Rolling 64-bit hash of the reference.
struct Fold {
  std::uint64_t value = 0xcbf29ce484222325;
  void add(std::uint64_t word) {
    value = (value ^ word) * 0x9E3779B97F4A7C15;
    value ^= value >> 29;
  }
};

std::string hex(std::uint64_t value, int width = 0) {
  char text[24];
  std::snprintf(text, sizeof text, "%0*llx", width, static_cast<unsigned long long>(value));
  return text;
}

class Replay {
 public:
  Replay(const RequestLog& log, const ReplayOptions& options, std::ostream& out)
      : log_(log),
        options_(options),
        out_(out),
        device_(options.capacity),
        allocator_(device_, parse_alloc_conf(options.conf), Combinations::as_pytorch),
        blocks_(log.id_count, kNoBlock) {
    if (options.fraction != 0) allocator_.set_memory_fraction(options.fraction);
    if (options.every == 0) throw Error(ErrorKind::usage, "allocator replay: checkpoints every 0 requests");
  }

  void run() {
    header();
    std::uint64_t done = 0;
    for (const AllocRequest& request : log_.requests) {
      device_.log().clear();
      const std::string result = perform(request);
      fold_events();
      fold_stats();
      if (done < options_.full) line(done, request, result);
      ++done;
      if (done % options_.every == 0 || done == log_.requests.size()) checkpoint(done);
    }
    if (done == 0) checkpoint(0);
    trailer(done);
  }

 private:
  void header() {
    char fraction[32];
    std::snprintf(fraction, sizeof fraction, "%g", options_.fraction);
    out_ << "# allocator-oracle v1 " << options_.name << "\n# req=" << options_.request_name
         << "\n# conf=" << (options_.conf.empty() ? "(default)" : options_.conf)
         << "\n# capacity=" << options_.capacity << " fraction=" << fraction << " full=" << options_.full
         << " every=" << options_.every << "\n";
  }

  // Carries the request out, folds its result and returns it as text.
  std::string perform(const AllocRequest& request) {
    BlockId* block = request.dense < blocks_.size() ? &blocks_[request.dense] : nullptr;
    const bool needs_block = request.kind == Kind::free || request.kind == Kind::record_stream;
    if (needs_block && *block == kNoBlock) {
      results_.add(1);
      if (request.kind == Kind::free) ++skipped_;
      return "skip";
    }
    if (request.kind == Kind::malloc) return allocate(request, *block);
    results_.add(0);
    switch (request.kind) {
      case Kind::free:
        allocator_.free(*block);
        *block = kNoBlock;
        break;
      case Kind::record_stream:
        allocator_.record_stream(*block, request.stream);
        break;
      case Kind::complete:
        device_.complete(request.stream, request.amount);
        break;
      case Kind::complete_all:
        device_.complete_all();
        break;
      case Kind::empty_cache:
        allocator_.empty_cache();
        break;
      case Kind::malloc:
        break;
    }
    return "-";
  }

  std::string allocate(const AllocRequest& request, BlockId& block) {
    const AllocResult result =
        allocator_.alloc(Bytes{static_cast<std::int64_t>(request.amount)}, request.stream);
    switch (result.status) {
      case AllocStatus::out_of_memory:
        results_.add(~std::uint64_t{0});
        return "OOM";
      case AllocStatus::internal_assert:
        results_.add(~std::uint64_t{1});
        ++errors_;
        return "ERR";
      case AllocStatus::ok:
        break;
    }
    results_.add(result.address);
    block = result.block;
    return result.address == 0 ? "0" : hex(result.address);
  }

  void fold_events() {
    for (const StubDevice::LogEntry& entry : device_.log()) {
      if (entry.kind > LogKind::release) continue;
      events_.add(static_cast<std::uint64_t>(entry.kind) + 1);
      events_.add(entry.address);
      events_.add(entry.size);
    }
  }

  void fold_stats() {
    const AllocatorStats& stats = allocator_.stats();
    for (const std::int64_t value :
         {stats.all.allocated_bytes.current, stats.all.reserved_bytes.current, stats.all.active_bytes.current,
          stats.all.inactive_split_bytes.current, stats.num_alloc_retries, stats.num_ooms}) {
      statistics_.add(static_cast<std::uint64_t>(value));
    }
  }

  void line(std::uint64_t index, const AllocRequest& request, const std::string& result) {
    out_ << index << ' ';
    switch (request.kind) {
      case Kind::malloc:
        out_ << "m " << request.id << ' ' << request.amount << ' ' << request.stream;
        break;
      case Kind::free:
        out_ << "f " << request.id;
        break;
      case Kind::record_stream:
        out_ << "r " << request.id << ' ' << request.stream;
        break;
      case Kind::complete:
        out_ << "c " << request.stream << ' ' << request.amount;
        break;
      case Kind::complete_all:
        out_ << 'z';
        break;
      case Kind::empty_cache:
        out_ << 'e';
        break;
    }
    out_ << " = " << result;
    for (const StubDevice::LogEntry& entry : device_.log()) event(entry);
    const ScopeStats& all = allocator_.stats().all;
    out_ << " | " << all.allocated_bytes.current << ' ' << all.reserved_bytes.current << ' '
         << all.active_bytes.current << ' ' << all.inactive_split_bytes.current << '\n';
  }

  void event(const StubDevice::LogEntry& entry) {
    static constexpr const char* kNames[] = {"+A:", "-A:", "+M:", "-M:", "+V:", "-V:", "!A:", "!M:", "~"};
    out_ << ' ' << kNames[static_cast<int>(entry.kind)];
    switch (entry.kind) {
      case LogKind::segment_alloc:
      case LogKind::segment_free:
      case LogKind::map:
      case LogKind::unmap:
        out_ << hex(entry.address) << ':' << entry.size << ':' << entry.stream;
        break;
      case LogKind::reserve:
      case LogKind::release:
        out_ << hex(entry.address) << ':' << entry.size;
        break;
      case LogKind::malloc_failed:
      case LogKind::create_failed:
        out_ << entry.size;
        break;
      case LogKind::deferred_free:
        out_ << hex(entry.address);
        break;
    }
  }

  void checkpoint(std::uint64_t done) {
    const std::vector<SegmentInfo> segments = allocator_.snapshot();
    Fold map;
    std::uint64_t blocks = 0;
    for (const SegmentInfo& segment : segments) {
      map.add(segment.address);
      map.add(segment.size);
      map.add(segment.stream);
      map.add(segment.large ? 1 : 0);
      map.add(segment.expandable ? 1 : 0);
      blocks += segment.blocks.size();
      for (const SegmentInfo::BlockInfo& block : segment.blocks) {
        map.add(block.size);
        map.add((block.allocated ? 1u : 0u) | (block.active ? 2u : 0u));
      }
    }
    const AllocatorStats& stats = allocator_.stats();
    out_ << "@ " << done << " ra=" << hex(results_.value, 16) << " re=" << hex(events_.value, 16)
         << " rs=" << hex(statistics_.value, 16) << " st=" << hex(map.value, 16)
         << " alloc=" << stats.all.allocated_bytes.current << " resv=" << stats.all.reserved_bytes.current
         << " act=" << stats.all.active_bytes.current << " insp=" << stats.all.inactive_split_bytes.current
         << " retries=" << stats.num_alloc_retries << " ooms=" << stats.num_ooms
         << " nseg=" << segments.size() << " nblk=" << blocks << '\n';
  }

  void trailer(std::uint64_t done) {
    if (options_.block_map) {
      for (const SegmentInfo& segment : allocator_.snapshot()) {
        out_ << "S " << hex(segment.address) << ' ' << segment.size << " s" << segment.stream << ' '
             << (segment.large ? "large" : "small") << (segment.expandable ? " exp:" : ":");
        for (const SegmentInfo::BlockInfo& block : segment.blocks) {
          out_ << ' ' << block.size << (block.allocated ? 'A' : block.active ? 'P' : 'F');
        }
        out_ << '\n';
      }
    }
    stat("allocation", &ScopeStats::allocation);
    stat("segment", &ScopeStats::segment);
    stat("active", &ScopeStats::active);
    stat("inactive_split", &ScopeStats::inactive_split);
    stat("allocated_bytes", &ScopeStats::allocated_bytes);
    stat("reserved_bytes", &ScopeStats::reserved_bytes);
    stat("active_bytes", &ScopeStats::active_bytes);
    stat("inactive_split_bytes", &ScopeStats::inactive_split_bytes);
    stat("requested_bytes", &ScopeStats::requested_bytes);
    const AllocatorStats& stats = allocator_.stats();
    const StubDevice::Calls& calls = device_.calls();
    out_ << "stat oversize_allocations all:";
    values(stats.oversize_allocations);
    out_ << "\nstat oversize_segments all:";
    values(stats.oversize_segments);
    out_ << "\ncount num_alloc_retries=" << stats.num_alloc_retries << " num_ooms=" << stats.num_ooms
         << " num_sync_all_streams=" << stats.num_sync_all_streams
         << " num_device_alloc=" << stats.num_device_alloc << " num_device_free=" << stats.num_device_free
         << "\nstub cudaMalloc=" << calls.cuda_malloc << " cudaFree=" << calls.cuda_free
         << " cuMemCreate=" << calls.mem_create << " cuMemRelease=" << calls.mem_release
         << " event_record=" << calls.event_record << " event_query=" << calls.event_query
         << " event_sync=" << calls.event_sync << " stream_sync=" << calls.stream_sync
         << " used_at_end=" << device_.used() << " skipped=" << skipped_ << " errors=" << errors_ << "\nend "
         << done << '\n';
  }

  void stat(const char* name, Stat ScopeStats::*member) {
    const AllocatorStats& stats = allocator_.stats();
    out_ << "stat " << name << " all:";
    values(stats.all.*member);
    out_ << " small:";
    values(stats.small_pool.*member);
    out_ << " large:";
    values(stats.large_pool.*member);
    out_ << '\n';
  }

  void values(const Stat& stat) {
    out_ << stat.current << '/' << stat.peak << '/' << stat.allocated() << '/' << stat.freed;
  }

  const RequestLog& log_;
  const ReplayOptions& options_;
  std::ostream& out_;
  StubDevice device_;
  CachingAllocator<StubDevice> allocator_;
  std::vector<BlockId> blocks_;  // by dense id
  Fold results_, events_, statistics_;
  std::uint64_t skipped_ = 0, errors_ = 0;
};

}  // namespace

RequestLog parse_requests(std::istream& in, const std::string& name) {
  constexpr std::uint64_t kAny = std::numeric_limits<std::uint64_t>::max();
  RequestLog log;
  std::unordered_map<std::uint64_t, std::uint32_t> dense;
  std::vector<bool> allocated;
  const auto dense_id = [&](std::uint64_t id) {
    const auto [found, is_new] = dense.try_emplace(id, log.id_count);
    if (is_new) {
      ++log.id_count;
      allocated.push_back(false);
    }
    return found->second;
  };
  std::string line;
  for (std::uint64_t number = 1; std::getline(in, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line.front() == '#') continue;
    LineReader reader(line, name, number);
    const std::string_view word = reader.word("a request");
    AllocRequest request;
    if (word == "m") {
      request.kind = Kind::malloc;
      request.id = reader.number("an id", kAny);
      request.amount = reader.number("a size", std::uint64_t{1} << 62);
      request.stream = reader.stream();
      request.dense = dense_id(request.id);
      if (allocated[request.dense]) reader.fail("id " + std::to_string(request.id) + " is allocated twice");
      allocated[request.dense] = true;
    } else if (word == "f" || word == "r") {
      request.kind = word == "f" ? Kind::free : Kind::record_stream;
      request.id = reader.number("an id", kAny);
      request.dense = dense_id(request.id);
      if (word == "r") request.stream = reader.stream();
    } else if (word == "c") {
      request.kind = Kind::complete;
      request.stream = reader.stream();
      request.amount = reader.number("a number of events", kAny);
    } else if (word == "z" || word == "e") {
      request.kind = word == "z" ? Kind::complete_all : Kind::empty_cache;
    } else {
      reader.fail("unknown request '" + std::string(word) + "'; expected m, f, r, c, z or e");
    }
    reader.finish();
    log.requests.push_back(request);
  }
  if (in.bad()) throw Error(ErrorKind::input, name + ": cannot be read to its end");
  return log;
}

void replay_requests(const RequestLog& log, const ReplayOptions& options, std::ostream& out) {
  Replay(log, options, out).run();
}

void replay_requests(std::istream& in, const ReplayOptions& options, std::ostream& out) {
  replay_requests(parse_requests(in, options.request_name), options, out);
}

}  // namespace swaplab
