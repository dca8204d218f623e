// From the nodes of a Chakra trace to operators, storages and times.
#include <algorithm>
#include <map>
#include <optional>
#include <queue>
#include <tuple>

#include "trace/builder.hpp"
#include "trace/import/chakra.hpp"
#include "trace/import/streams.hpp"
#include "trace/import/sum.hpp"
#include "trace/import/wording.hpp"

namespace swaplab::chakra {
namespace {

constexpr std::uint32_t kNone = kFromBefore;

// One operator: the pieces into which a linked trace cuts a host operator ("aten::mul(0)", "aten::mul(1)")
// and the kernels that depend on them, or one node alone.
struct Operator {
  std::vector<std::uint32_t> nodes;
  std::int64_t device_us = 0, host_us = -1;
  std::map<std::int64_t, std::int64_t> by_stream{};
  Phase phase = Phase::unknown;
};

// "aten::mul(1)" without its number, which is -1 when there is none.
std::pair<std::string_view, std::int64_t> piece_of(std::string_view name) {
  if (name.empty() || name.back() != ')') return {name, -1};
  const auto open = name.rfind('(');
  if (open == std::string_view::npos || open + 3 > name.size()) return {name, -1};
  std::int64_t number = 0;
  for (const char c : name.substr(open + 1, name.size() - open - 2)) {
    if (c < '0' || c > '9' || number > 1000000) return {name, -1};
    number = number * 10 + (c - '0');
  }
  return {name.substr(0, open), number};
}

class Assembly {
 public:
  explicit Assembly(const Graph& graph) : g_(graph) {}

  ImportResult run() {
    order();
    group();
    phases();
    follow();
    ImportResult result;
    if (!ops_.empty()) result.trace = emit();
    report(result.report);
    return result;
  }

 private:
  bool on_device(const Node& n) const { return n.side != Side::host; }
  std::uint32_t row(std::uint64_t id) const {
    const auto found = std::lower_bound(g_.nodes.begin(), g_.nodes.end(), id,
                                        [](const Node& n, std::uint64_t want) { return n.id < want; });
    return found == g_.nodes.end() || found->id != id ? kNone
                                                      : static_cast<std::uint32_t>(found - g_.nodes.begin());
  }

  // Dependencies first, else by id. Linked traces can hold cycles; then the ids alone say the order.
  void order() {
    const auto count = static_cast<std::uint32_t>(g_.nodes.size());
    std::vector<std::vector<std::uint32_t>> next(count);
    std::vector<std::uint32_t> waits(count, 0);
    std::vector<std::uint64_t> outside;
    for (std::uint32_t i = 0; i < count; ++i) {
      for (const auto* list : {&g_.nodes[i].control, &g_.nodes[i].data}) {
        for (const std::uint64_t id : *list) {
          ++dependencies_;
          const std::uint32_t on = row(id);
          if (on == kNone) {
            outside.push_back(id);
          } else if (on == i) {
            ++on_itself_;
          } else {
            next[on].push_back(i);
            ++waits[i];
          }
        }
      }
    }
    dangling_uses_ = static_cast<std::int64_t>(outside.size());
    std::sort(outside.begin(), outside.end());
    dangling_ = std::unique(outside.begin(), outside.end()) - outside.begin();
    std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ready;
    for (std::uint32_t i = 0; i < count; ++i) {
      if (waits[i] == 0) ready.push(i);
    }
    while (!ready.empty()) {
      const std::uint32_t i = ready.top();
      ready.pop();
      order_.push_back(i);
      for (const std::uint32_t after : next[i]) {
        if (--waits[after] == 0) ready.push(after);
      }
    }
    cyclic_ = count - static_cast<std::int64_t>(order_.size());
    if (cyclic_ == 0) return;
    order_.resize(count);
    for (std::uint32_t i = 0; i < count; ++i) order_[i] = i;
  }

  void group() {
    std::vector<std::uint32_t> op_of(g_.nodes.size(), kNone);
    std::map<std::tuple<std::int64_t, std::int64_t, std::string_view>, std::uint32_t> open;
    for (const std::uint32_t i : order_) {
      const Node& n = g_.nodes[i];
      if (n.type == NodeType::metadata) continue;
      std::uint32_t op = kNone;
      if (n.side == Side::host) {
        const auto [name, piece] = piece_of(g_.texts[n.name]);
        if (piece >= 0) {
          const auto key = std::tuple(n.record, n.thread, name);
          const auto found = open.find(key);
          if (piece > 0 && found != open.end()) op = found->second;
          if (op == kNone) open[key] = static_cast<std::uint32_t>(ops_.size());
          pieces_ += op != kNone ? 1 : 0;
        }
      } else if (n.side == Side::device) {
        for (const std::uint64_t id : n.control) {
          const std::uint32_t on = row(id);
          if (on != kNone && g_.nodes[on].side == Side::host && op_of[on] != kNone) op = op_of[on];
        }
        (op == kNone ? alone_ : launched_) += 1;
      }
      if (op == kNone) {
        op = static_cast<std::uint32_t>(ops_.size());
        ops_.emplace_back();
      }
      op_of[i] = op;
      ops_[op].nodes.push_back(i);
      if (on_device(n)) {
        ops_[op].device_us += n.duration_us;
        ops_[op].by_stream[n.thread] += n.duration_us;
        add_checked(device_ns_, n.duration_us * 1000);
      } else {
        ops_[op].host_us = std::max<std::int64_t>(ops_[op].host_us, 0) + n.duration_us;
      }
      add_checked(duration_ns_, n.duration_us * 1000);
    }
  }

  // A thread of the autograd engine runs only the backward pass: one that names a forward thread, or another
  // than the first that runs an operator named after it.
  void phases() {
    std::map<std::int64_t, bool> backward_thread;
    std::int64_t first = -1;
    for (const Node& n : g_.nodes) {
      if (n.side != Side::host || n.thread < 0) continue;
      if (first < 0) first = n.thread;
      const bool named = n.thread != first && g_.texts[n.name].find("ackward") != std::string::npos;
      if (n.for_backward || named) backward_thread[n.thread] = true;
    }
    std::uint32_t last = kNone;
    for (std::uint32_t o = 0; o < ops_.size(); ++o) {
      const Node& n = g_.nodes[ops_[o].nodes.front()];
      const bool named = g_.texts[n.name].find("ackward") != std::string::npos;
      if (!named && !(n.side == Side::host && backward_thread.count(n.thread) != 0)) continue;
      ops_[o].phase = Phase::backward;
      ++backward_;
      last = o;
    }
    // What runs after the last backward operator may be the optimizer: the file does not say.
    for (std::uint32_t o = 0; last != kNone && o < last; ++o) {
      if (ops_[o].phase == Phase::unknown) ops_[o].phase = Phase::forward;
    }
  }

  void follow() {
    bool device = false;
    for (const Node& n : g_.nodes) {
      for (const auto* list : {&n.inputs, &n.outputs}) {
        for (const TensorUse& use : *list) {
          device |= use.on_device;
          ++tensor_uses_;
        }
      }
    }
    on_device_ = device || tensor_uses_ == 0;
    lives_ = StorageLives(on_device_);
    for (const Operator& op : ops_) {
      lives_.begin_operator();
      for (const std::uint32_t i : op.nodes) {
        const Node& n = g_.nodes[i];
        if (i == op.nodes.front() && g_.texts[n.name].rfind("aten::empty", 0) == 0) lives_.make(n.outputs);
      }
      for (const std::uint32_t i : op.nodes) {
        const Node& n = g_.nodes[i];
        lives_.use(n.inputs, n.outputs, g_.texts[n.schema], n.side == Side::host || op.nodes.size() == 1);
      }
    }
    lives_.finish();
  }

  Trace emit() {
    TraceBuilder b;
    TraceHeader header;
    header.source = g_.json ? "import-chakra-json" : "import-chakra";
    header.device = on_device_ ? "cuda" : "cpu";
    b.set_header(header);
    const std::string_view place = on_device_ ? "cuda:0" : "cpu";
    const std::vector<StorageLife>& lives = lives_.lives();
    std::vector<StorageId> ids(lives.size());
    for (std::uint32_t i = 0; i < lives.size(); ++i) {
      if (lives[i].birth != kFromBefore) continue;
      ids[i] = b.alloc(Bytes{lives[i].bytes}, place, true);
      ++external_;
      baseline_ += lives[i].bytes;
    }
    std::map<std::pair<std::string_view, std::int64_t>, SigId> signatures;
    std::vector<StorageId> in, out, wrote;
    b.mark(MarkKind::iter_begin, "train", 0, Nanos{-1});
    std::map<std::int64_t, std::int64_t> busy;
    for (const Operator& op : ops_) {
      for (const auto& [stream, time] : op.by_stream) busy[stream] += time;
    }
    const auto streams = stream_numbers(busy);
    for (std::uint32_t o = 0; o < ops_.size(); ++o) {
      const OperatorStorages& from = lives_.of(o);
      in.clear();
      out.clear();
      wrote.clear();
      for (const std::uint32_t life : from.in) in.push_back(ids[life]);
      for (const std::uint32_t life : from.wrote) wrote.push_back(ids[life]);
      for (const std::uint32_t life : from.out)
        out.push_back(ids[life] = b.alloc(Bytes{lives[life].bytes}, place, false));
      const Node& first = g_.nodes[ops_[o].nodes.front()];
      const auto name = first.side == Side::host ? piece_of(g_.texts[first.name]).first
                                                 : std::string_view(g_.texts[first.name]);
      const auto [it, inserted] = signatures.try_emplace({name, from.scratch});
      if (inserted) {
        TraceBuilder::Signature s;
        s.name = name;
        s.scratch = Bytes{from.scratch};
        it->second = b.add_signature(s);
      }
      TraceBuilder::Op op;
      op.signature = it->second;
      op.phase = ops_[o].phase;
      op.device_time = Nanos{ops_[o].device_us * 1000};
      if (ops_[o].host_us >= 0) op.host_time = Nanos{ops_[o].host_us * 1000};
      if (!ops_[o].by_stream.empty()) op.stream = streams.at(busiest_stream(ops_[o].by_stream));
      op.in = in;
      op.out = out;
      op.written = wrote;
      b.op(op);
      for (const std::uint32_t life : from.freed) b.free(ids[life]);
    }
    b.mark(MarkKind::iter_end, "", 0, Nanos{-1});
    return b.finish();
  }

  void report(ImportReport& r) const {
    std::int64_t compute = 0, collectives = 0, sends = 0, host = 0, bytes = 0;
    for (const Node& n : g_.nodes) {
      compute += n.type == NodeType::compute ? 1 : 0;
      collectives += n.type == NodeType::collective ? 1 : 0;
      sends += n.type == NodeType::send || n.type == NodeType::receive ? 1 : 0;
      host += n.side == Side::host ? 1 : 0;
      add_checked(bytes, std::max<std::int64_t>(n.communicated_bytes, 0));
    }
    const auto lives = static_cast<std::int64_t>(lives_.lives().size()), scratch = lives_.scratch_storages();
    r.version = g_.version.empty() ? (g_.json ? "workload_graph" : "no version") : g_.version;
    r.add_found("nodes", static_cast<std::int64_t>(g_.nodes.size()));
    r.add_found("compute_nodes", compute);
    r.add_found("collective_nodes", collectives);
    r.add_found("send_receive_nodes", sends);
    r.add_found("host_nodes", host);
    r.add_found("communicated_bytes", bytes);
    r.add_found("dependencies", dependencies_);
    r.add_found("tensor_uses", tensor_uses_);
    r.add_found("duration_us", duration_ns_ / 1000);
    r.add_found("device_time_ns", device_ns_);
    r.add_found("trace_operators", static_cast<std::int64_t>(ops_.size()));
    r.add_found("storages", lives - scratch);
    r.add_found("iterations", ops_.empty() ? 0 : 1);
    r.baseline = Bytes{tensor_uses_ != 0 ? baseline_ : -1};
    r.derive("pieces joined", pieces_,
             "a linked trace cuts a host operator at its launches: \"aten::mul(1)\"");
    r.derive("kernels to operators", launched_, "by their control dependency on a host operator");
    r.derive("operators from kernels alone", alone_, "they depend on no host operator of the file");
    r.derive("backward operators", backward_,
             "by their name, or on a thread that runs operators for a forward thread");
    r.derive("storages from before", external_,
             "used before any operator makes them: they live all the time");
    r.derive("storage ids reused", lives_.reused_ids(),
             "aten::empty makes new memory under an id that was there before");
    r.derive("frees", lives - external_ - scratch,
             "the file has none: a storage made here ends after its last use");
    r.derive("scratch storages", scratch,
             "made and last used inside one operator, not among its results: scratch bytes (their sum)");
    r.derive("iterations", ops_.empty() ? 0 : 1, "the whole file is one iteration");
    r.derive("order by id", cyclic_,
             "nodes in or after a cycle of dependencies: the order of the ids is kept for all");
    r.drop("dependencies on nodes that are not in the file", dangling_uses_,
           counted(dangling_, "distinct id"));
    r.drop("dependencies of a node on itself", on_itself_, "they say nothing");
    r.drop("uses of host tensors", on_device_ ? lives_.other_side_uses() : 0,
           "a swap study moves device memory");
    r.drop("tensors without usable sizes", g_.bad_tensors, "beyond what a device can hold");
    r.repair("bytes that are not UTF-8", g_.bad_utf8, "replaced by U+FFFD");
    conclude(r);
  }

  void conclude(ImportReport& r) const {
    const bool storages = !lives_.lives().empty(), times = device_ns_ > 0;
    if (!storages) r.missing.push_back("storages: no node carries tensors with sizes");
    if (!times) r.missing.push_back("device times");
    if (g_.without_duration != 0) r.missing.push_back("times of " + counted(g_.without_duration, "node"));
    if (ops_.empty()) {
      r.study_reason = "the file holds no node";
    } else if (storages && times) {
      r.study = StudyKind::full;
      r.study_reason = "nodes with their tensors, storages and times";
    } else if (storages) {
      r.study = StudyKind::memory_only;
      r.study_reason = "nodes with their tensors and storages, but no times";
    } else if (times) {
      r.study = StudyKind::times_only;
      r.study_reason = "nodes with times, but no tensors or storages";
    } else {
      r.study_reason = "communication without times or storages";
    }
  }

  const Graph& g_;
  std::vector<std::uint32_t> order_;
  std::vector<Operator> ops_;
  StorageLives lives_{true};
  bool on_device_ = true;
  std::int64_t dependencies_ = 0, dangling_ = 0, dangling_uses_ = 0, on_itself_ = 0, cyclic_ = 0;
  std::int64_t pieces_ = 0, launched_ = 0, alone_ = 0, backward_ = 0, external_ = 0, baseline_ = 0;
  std::int64_t device_ns_ = 0, duration_ns_ = 0, tensor_uses_ = 0;
};

}  // namespace

ImportResult import_graph(const Graph& graph) {
  return Assembly(graph).run();
}

}  // namespace swaplab::chakra
