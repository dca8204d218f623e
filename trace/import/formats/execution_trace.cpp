// PyTorch ExecutionTrace: who uses which storage, without times; with its Kineto half also the times.
#include "trace/import/execution_trace.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <tuple>

#include "trace/builder.hpp"
#include "trace/error.hpp"
#include "trace/human.hpp"
#include "trace/import/importer.hpp"
#include "trace/import/kineto_link.hpp"
#include "trace/import/kineto_nesting.hpp"
#include "trace/import/wording.hpp"

namespace swaplab {
namespace {

using execution_trace::Graph;
using execution_trace::Node;
using kineto::kNoIndex;

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

struct Operator {
  std::uint32_t node;
  Phase phase = Phase::unknown;
};

class Assembly {
 public:
  explicit Assembly(const Graph& graph) : g_(graph) {}

  // `files` are the execution trace and the profile of `events`, nullptr when there is none.
  ImportResult run(std::span<const ImportInput> files, const kineto::Events* events) {
    ImportResult result;
    choose_operators();
    follow_storages();
    phases();
    std::optional<kineto::Link> link;
    if (events != nullptr) {
      std::vector<std::string_view> names;
      std::vector<std::uint64_t> records;
      for (const Operator& op : ops_) {
        names.push_back(g_.texts[g_.nodes[op.node].name]);
        records.push_back(g_.nodes[op.node].record);
      }
      link = kineto::link_operators(*events, names, records);
      // Names that every recording has agree by chance; halves of one recording agree nearly everywhere.
      if (link->matched * 2 < static_cast<std::int64_t>(ops_.size()))
        throw Error(ErrorKind::input, files[0].name() + ": only " + std::to_string(link->matched) +
                                          " of its " +
                                          counted(static_cast<std::int64_t>(ops_.size()), "operator") +
                                          " have a counterpart in " + files[1].name() +
                                          ": these are not halves of one recording");
    }
    if (!ops_.empty()) result.trace = emit(link ? &*link : nullptr);
    report(result.report, link ? &*link : nullptr);
    return result;
  }

 private:
  void choose_operators() {
    unit_.assign(g_.nodes.size(), kNoIndex);
    std::vector<std::uint32_t> op_of(g_.nodes.size(), kNoIndex);
    for (std::uint32_t i = 0; i < g_.nodes.size(); ++i) {
      std::uint32_t top = kNoIndex;
      for (std::uint32_t at = i; at != kNoIndex; at = g_.parent[at]) {
        if (kineto::is_dispatched(g_.texts[g_.nodes[at].name])) top = at;
      }
      const Node& n = g_.nodes[i];
      if (top == kNoIndex && g_.children[i] == 0 && !(n.inputs.empty() && n.outputs.empty())) top = i;
      unit_[i] = top;
      if (top == i) {
        op_of[i] = static_cast<std::uint32_t>(ops_.size());
        ops_.push_back({i, Phase::unknown});
      }
      on_device_ |=
          std::any_of(n.inputs.begin(), n.inputs.end(), [](const TensorUse& u) { return u.on_device; }) ||
          std::any_of(n.outputs.begin(), n.outputs.end(), [](const TensorUse& u) { return u.on_device; });
    }
    members_.resize(ops_.size());
    for (std::uint32_t i = 0; i < g_.nodes.size(); ++i) {
      if (unit_[i] != kNoIndex) members_[op_of[unit_[i]]].push_back(i);
    }
  }

  void follow_storages() {
    lives_ = StorageLives(on_device_);
    for (std::uint32_t o = 0; o < ops_.size(); ++o) {
      lives_.begin_operator();
      for (const std::uint32_t m : members_[o]) {
        const Node& n = g_.nodes[m];
        if (g_.children[m] == 0 && g_.texts[n.name].rfind("aten::empty", 0) == 0) lives_.make(n.outputs);
      }
      for (const std::uint32_t m : members_[o]) {
        const Node& n = g_.nodes[m];
        lives_.use(n.inputs, n.outputs, g_.texts[n.schema], m == ops_[o].node);
      }
    }
    lives_.finish();
  }

  void phases() {
    bool backward = false;
    for (Operator& op : ops_) {
      for (std::uint32_t at = op.node; at != kNoIndex; at = g_.parent[at]) {
        const std::string& name = g_.texts[g_.nodes[at].name];
        if (has(name, "Backward") || name.rfind("autograd::engine::evaluate_function", 0) == 0)
          op.phase = Phase::backward;
        if (name.rfind("Optimizer.step", 0) == 0) op.phase = Phase::optimizer;
        if (name.rfind("Optimizer.zero_grad", 0) == 0) op.phase = Phase::zero_grad;
        if (name.rfind("enumerate(DataLoader)", 0) == 0) op.phase = Phase::data;
      }
      backward |= op.phase == Phase::backward;
      backward_ops_ += op.phase == Phase::backward ? 1 : 0;
    }
    for (Operator& op : ops_) {
      if (backward && op.phase == Phase::unknown) op.phase = Phase::forward;
    }
  }

  Trace emit(const kineto::Link* link) {
    TraceBuilder b;
    TraceHeader header;
    header.source = "import-execution-trace";
    header.device = on_device_ ? "cuda" : "cpu";
    b.set_header(header);
    const std::string_view place = on_device_ ? "cuda:0" : "cpu";
    const std::vector<StorageLife>& lives = lives_.lives();
    std::vector<StorageId> ids(lives.size());
    for (std::uint32_t v = 0; v < lives.size(); ++v) {
      if (lives[v].birth == kFromBefore) {
        ids[v] = b.alloc(Bytes{lives[v].bytes}, place, true);
        ++external_;
        baseline_ += lives[v].bytes;
      }
    }
    std::map<std::tuple<std::uint32_t, std::int64_t>, SigId> signatures;
    std::size_t extra = 0;
    const auto unclaimed = [&](std::size_t before) {
      for (; link != nullptr && extra < link->unclaimed.size() && link->unclaimed[extra].before <= before;
           ++extra) {
        TraceBuilder::Signature s;
        s.name = link->unclaimed[extra].name;
        TraceBuilder::Op op;
        op.signature = b.add_signature(s);
        op.device_time = Nanos{link->unclaimed[extra].device_time};
        b.op(op);
      }
    };
    std::vector<std::uint32_t> steps;
    for (std::uint32_t i = 0; i < g_.nodes.size(); ++i) {
      if (g_.texts[g_.nodes[i].name].rfind("ProfilerStep", 0) == 0) steps.push_back(i);
    }
    std::size_t step = 0;
    bool inside = false;
    std::int64_t number = 0;
    const auto begin = [&](std::int64_t n) {
      if (inside) b.mark(MarkKind::iter_end, "", number, Nanos{-1});
      number = n;
      b.mark(MarkKind::iter_begin, "train", number, Nanos{-1});
      inside = true;
      ++iterations_;
    };
    if (steps.empty()) begin(0);
    std::vector<StorageId> in, out, wrote;
    for (std::uint32_t o = 0; o < ops_.size(); ++o) {
      for (; step < steps.size() && steps[step] < ops_[o].node; ++step)
        begin(static_cast<std::int64_t>(step));
      unclaimed(o);
      const OperatorStorages& from = lives_.of(o);
      in.clear();
      out.clear();
      wrote.clear();
      for (const std::uint32_t v : from.in) in.push_back(ids[v]);
      for (const std::uint32_t v : from.wrote) wrote.push_back(ids[v]);
      for (const std::uint32_t v : from.out)
        out.push_back(ids[v] = b.alloc(Bytes{lives[v].bytes}, place, false));
      const auto [it, inserted] = signatures.try_emplace({g_.nodes[ops_[o].node].name, from.scratch});
      if (inserted) {
        TraceBuilder::Signature s;
        s.name = g_.texts[g_.nodes[ops_[o].node].name];
        s.scratch = Bytes{from.scratch};
        it->second = b.add_signature(s);
      }
      TraceBuilder::Op op;
      op.signature = it->second;
      op.phase = ops_[o].phase;
      // All device work of the profile stands in a linked operator or in one of its own.
      if (link != nullptr) op.device_time = Nanos{std::max<std::int64_t>(link->device_time[o], 0)};
      if (link != nullptr) op.host_time = Nanos{link->host_time[o]};
      op.in = in;
      op.out = out;
      op.written = wrote;
      b.op(op);
      for (const std::uint32_t v : from.freed) b.free(ids[v]);
    }
    unclaimed(ops_.size());
    if (inside) b.mark(MarkKind::iter_end, "", number, Nanos{-1});
    return b.finish();
  }

  void report(ImportReport& r, const kineto::Link* link) const {
    const auto count = static_cast<std::int64_t>(lives_.lives().size()), scratch = lives_.scratch_storages();
    r.version = g_.schema + (g_.nested ? ", nested layout" : ", flat layout");
    r.add_found("nodes", static_cast<std::int64_t>(g_.nodes.size()));
    r.add_found("tensors", g_.tensors);
    r.add_found("storage_ids", g_.storages);
    r.add_found("storage_bytes", g_.extent_bytes);
    r.add_found("nodes_named_backward", g_.named_backward);
    r.add_found("largest_id", g_.max_id);
    r.add_found("trace_operators", static_cast<std::int64_t>(ops_.size()));
    r.add_found("storages", count - scratch);
    r.add_found("iterations", iterations_);
    r.baseline = Bytes{baseline_};
    r.derive("operators", static_cast<std::int64_t>(ops_.size()),
             "the outermost dispatched operator of each call, and leaves outside of any");
    r.derive("sizes", count, "the largest extent of a tensor in the storage");
    r.derive("frees", count - external_ - scratch,
             "the file has none: a storage made here ends after its last use");
    r.derive("storages from before", external_,
             "used before any operator makes them: they live all the time");
    r.derive("storage ids reused", lives_.reused_ids(),
             "aten::empty makes new memory under an id that was there before");
    r.derive("scratch storages", scratch,
             "made and last used inside one operator, not among its results: scratch bytes (their sum)");
    r.derive("backward operators", backward_ops_, "a node around them is a backward node");
    if (!on_device_) r.missing.push_back("device tensors: storages are the host's");
    r.drop("uses of host tensors", on_device_ ? lives_.other_side_uses() : 0,
           "a swap study moves device memory");
    r.drop("tensors without usable sizes", g_.bad_tensors, "beyond what a device can hold");
    r.drop("parents outside the file", g_.missing_parents, "the node counts as a root");
    if (ops_.empty()) {
      r.study_reason = "no node uses a tensor";
      return;
    }
    if (link == nullptr) {
      r.study = StudyKind::memory_only;
      r.missing.push_back("times: give the Kineto half too");
      r.study_reason = "operators, storages and who uses them, but no times";
      return;
    }
    r.study = link->total > 0 ? StudyKind::full : StudyKind::memory_only;
    r.study_reason = link_reason(*link);
    r.add_found("linked_operators", link->matched);
    r.add_found("kineto_device_time_ns", link->total);
    r.add_found("linked_device_time_ns", link->linked);
    r.add_found("unclaimed_device_time_ns", link->unclaimed_time);
    r.derive("links by Record function id", link->by_record, "the same number in both halves");
    r.derive("links by order and name", link->matched - link->by_record, "equal names in equal order");
    r.derive("operators from kernels alone", static_cast<std::int64_t>(link->unclaimed.size()),
             "device work between the linked operators that none of them launched");
    r.drop("device time outside of the execution trace, ns",
           link->total - link->linked - link->unclaimed_time, "the Kineto half records more iterations");
    r.derive("operators without device work", static_cast<std::int64_t>(ops_.size()) - link->matched,
             "the Kineto half does not name them; what they may have launched stands in operators from "
             "kernels alone");
  }

  std::string link_reason(const kineto::Link& link) const {
    const std::string linked = std::to_string(link.matched) + " of " +
                               counted(static_cast<std::int64_t>(ops_.size()), "operator") + " linked";
    if (link.total == 0)
      return "storages from the execution trace, but its Kineto half holds no device times: " + linked;
    std::string text = "storages from the execution trace, times from its Kineto half: " + linked + ", " +
                       share_of(link.linked, link.total) + " of the profile's device time";
    if (link.unclaimed_time > 0)
      text += "; " + human_time(Nanos{link.unclaimed_time}) + " stand in operators from kernels alone";
    if (const std::int64_t rest = link.total - link.linked - link.unclaimed_time; rest > 0)
      text += "; the other " + human_time(Nanos{rest}) + " are other iterations of the profile";
    if (backward_ops_ == 0) text += kForwardOnly;
    return text;
  }

  const Graph& g_;
  bool on_device_ = false;
  std::vector<std::uint32_t> unit_;
  std::vector<Operator> ops_;
  std::vector<std::vector<std::uint32_t>> members_;
  StorageLives lives_{false};
  std::int64_t external_ = 0, iterations_ = 0, baseline_ = 0, backward_ops_ = 0;
};

class ExecutionTraceImporter final : public Importer {
 public:
  ImporterInfo info() const override {
    return {"execution-trace", "PyTorch ExecutionTrace JSON, alone or with its Kineto half for times",
            "kineto"};
  }
  bool recognises(std::string_view head) const override {
    const auto first = head.find_first_not_of(" \t\r\n");
    if (first == std::string_view::npos || head[first] != '{') return false;
    return has(head, "\"nodes\"") && has(head, "\"schema\"") && !has(head, "\"traceEvents\"");
  }
  ImportResult import(std::span<const ImportInput> inputs) const override {
    const Graph graph = execution_trace::read_graph(inputs[0]);
    if (inputs.size() > 2)
      throw Error(ErrorKind::usage, inputs[2].name() + ": a second profile; an execution trace has one");
    if (inputs.size() == 1) return Assembly(graph).run(inputs, nullptr);
    const kineto::Events events = kineto::read_events(inputs[1]);
    return Assembly(graph).run(inputs, &events);
  }
};

}  // namespace
SWAPLAB_REGISTER_IMPORTER(ExecutionTraceImporter)
}  // namespace swaplab
