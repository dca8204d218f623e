// PipeDream's layer graphs: per layer the times of both passes, the bytes of its activation and parameters,
// and the edges between layers. The training step is derived: forward in order, backward in reverse.
#include <algorithm>
#include <map>
#include <queue>
#include <unordered_map>

#include "trace/builder.hpp"
#include "trace/import/decimal.hpp"
#include "trace/import/importer.hpp"
#include "trace/import/lines.hpp"
#include "trace/import/sum.hpp"
#include "trace/import/utf8.hpp"

namespace swaplab {
namespace {

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 50;
constexpr std::int64_t kMaxTime = std::int64_t{1} << 53;  // ns
constexpr std::string_view kBetween = " -- ";

struct Layer {
  std::string id, what;
  std::int64_t forward = 0, backward = 0, parameters = 0;  // ns, ns, bytes
  std::vector<std::int64_t> activations{};                 // bytes of each output that has any
  std::vector<std::uint32_t> before{}, after{};
};
struct Edge {
  std::string from, to;
  std::uint64_t line;
};

class Reader {
 public:
  explicit Reader(const ImportInput& input) : lines_(input) {}

  ImportResult run() {
    std::string_view line;
    std::vector<Edge> edges;
    while (lines_.next(line)) {
      if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
      if (line.front() == '\t' || line.front() == ' ') {
        const std::string_view pair = line.substr(line.find_first_not_of(" \t"));
        const auto at = pair.find(kBetween);
        if (at == std::string_view::npos) lines_.fail("expected an edge 'node1 -- node2'");
        edges.push_back({std::string(pair.substr(0, at)), std::string(pair.substr(at + kBetween.size())),
                         lines_.number()});
      } else {
        layer(line);
      }
    }
    for (const Edge& e : edges) {
      const std::uint32_t from = find(e.from, e.line), to = find(e.to, e.line);
      layers_[from].after.push_back(to);
      layers_[to].before.push_back(from);
    }
    edges_ = static_cast<std::int64_t>(edges.size());
    order();
    ImportResult result;
    if (!layers_.empty()) result.trace = emit();
    report(result.report, result.trace ? &*result.trace : nullptr);
    return result;
  }

 private:
  void layer(std::string_view line) {
    const auto first = line.find(kBetween), last = line.rfind(kBetween);
    if (first == std::string_view::npos || first == last)
      lines_.fail("expected 'node1 -- LAYER -- forward_compute_time=..., ...'");
    Layer layer{std::string(line.substr(0, first)),
                mend_utf8(line.substr(first + kBetween.size(), last - first - kBetween.size()), bad_utf8_)};
    std::string_view rest = line.substr(last + kBetween.size());
    unsigned seen = 0;
    while (!rest.empty()) {
      const auto equals = rest.find('=');
      if (equals == std::string_view::npos) lines_.fail("expected 'name=value'");
      std::string_view name = rest.substr(0, equals);
      rest.remove_prefix(equals + 1);
      const auto comma = rest.find(',');  // the items of a list stand between semicolons
      const std::string_view value = rest.substr(0, comma);
      rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
      while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
      if (name == "forward_compute_time") {
        layer.forward = number(value, 6, kMaxTime, "ms");
        seen |= 1u;
      } else if (name == "backward_compute_time") {
        layer.backward = number(value, 6, kMaxTime, "ms");
        seen |= 2u;
      } else if (name == "activation_size") {
        sizes(value, layer.activations);
        seen |= 4u;
      } else if (name == "parameter_size") {
        layer.parameters = number(value, 0, kMaxBytes, "bytes");
        seen |= 8u;
      } else if (name != "stage_id") {
        lines_.fail("unknown field '" + std::string(name.substr(0, 40)) + "'");
      }
    }
    if (seen != 15u)
      lines_.fail("expected forward_compute_time, backward_compute_time, activation_size and parameter_size");
    if (!ids_.try_emplace(layer.id, static_cast<std::uint32_t>(layers_.size())).second)
      lines_.fail("the layer '" + layer.id + "' occurs twice");
    layers_.push_back(std::move(layer));
  }
  std::int64_t number(std::string_view text, int scale, std::int64_t most, const char* what) {
    bool cut = false;
    const auto value = scaled_decimal(text, scale, &cut);
    if (!value || *value < 0 || *value > most)
      lines_.fail(std::string("expected ") + what + " as a number that is not negative, found '" +
                  std::string(text.substr(0, 40)) + "'");
    cut_ += cut ? 1 : 0;
    return *value;
  }
  void sizes(std::string_view text, std::vector<std::int64_t>& into) {
    if (text.empty() || text.front() != '[') {
      const std::int64_t bytes = number(text, 0, kMaxBytes, "bytes");
      if (bytes > 0) into.push_back(bytes);
      return;
    }
    if (text.back() != ']') lines_.fail("expected activation_size=[a; b; c]");
    text = text.substr(1, text.size() - 2);
    while (!text.empty()) {
      const auto semicolon = text.find(';');
      std::string_view item = text.substr(0, semicolon);
      while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
      const std::int64_t bytes = number(item, 0, kMaxBytes, "bytes");
      if (bytes > 0) into.push_back(bytes);
      text = semicolon == std::string_view::npos ? std::string_view() : text.substr(semicolon + 1);
    }
  }
  std::uint32_t find(const std::string& id, std::uint64_t line) {
    const auto found = ids_.find(id);
    if (found != ids_.end()) return found->second;
    lines_.fail_at(line, "the edge names '" + id + "', which is no layer of the file");
  }

  // Layers in an order that the edges allow; those that could come next by their place in the file's
  // numbering.
  void order() {
    std::vector<std::size_t> waits(layers_.size());
    using Key =
        std::tuple<std::size_t, std::string_view, std::uint32_t>;  // length first: node9 before node10
    std::priority_queue<Key, std::vector<Key>, std::greater<>> ready;
    const auto push = [&](std::uint32_t i) { ready.emplace(layers_[i].id.size(), layers_[i].id, i); };
    for (std::uint32_t i = 0; i < layers_.size(); ++i) {
      waits[i] = layers_[i].before.size();
      if (waits[i] == 0) push(i);
    }
    while (!ready.empty()) {
      const std::uint32_t i = std::get<2>(ready.top());
      ready.pop();
      order_.push_back(i);
      for (const std::uint32_t next : layers_[i].after) {
        if (--waits[next] == 0) push(next);
      }
    }
    if (order_.size() == layers_.size()) return;
    const auto stuck = std::find_if(waits.begin(), waits.end(), [](std::size_t w) { return w != 0; });
    lines_.fail("the edges form a cycle, on or before layer '" +
                layers_[static_cast<std::size_t>(stuck - waits.begin())].id + "'");
  }

  SigId signature(TraceBuilder& b, const std::string& what, bool backward) {
    const std::string name = what + (backward ? " backward" : "");
    const auto [it, inserted] = signatures_.try_emplace(name);
    if (inserted) {
      TraceBuilder::Signature s;
      s.name = name;
      it->second = b.add_signature(s);
    }
    return it->second;
  }

  Trace emit() {
    TraceBuilder b;
    TraceHeader header;
    header.source = "import-pipedream";
    header.device = "cuda";
    b.set_header(header);
    const auto alloc = [&](std::int64_t bytes, bool external) {
      return b.alloc(Bytes{bytes}, "cuda:0", external);
    };
    std::vector<StorageId> parameter(layers_.size());
    for (const std::uint32_t i : order_) {
      if (layers_[i].parameters == 0) continue;
      parameter[i] = alloc(layers_[i].parameters, true);
      b.tag(parameter[i], StorageClass::parameter, layers_[i].id);
      baseline_ += layers_[i].parameters;
    }
    std::vector<std::vector<StorageId>> activation(layers_.size()), gradient(layers_.size());
    b.mark(MarkKind::iter_begin, "train", 0, Nanos{-1});
    std::vector<StorageId> in, out, written;
    const auto reads = [&](std::uint32_t i) {
      in.clear();
      for (const std::uint32_t p : layers_[i].before)
        in.insert(in.end(), activation[p].begin(), activation[p].end());
      if (layers_[i].parameters != 0) in.push_back(parameter[i]);
    };
    const auto add = [&](std::uint32_t i, bool backward) {
      TraceBuilder::Op op;
      op.signature = signature(b, layers_[i].what, backward);
      op.phase = backward ? Phase::backward : Phase::forward;
      op.device_time = Nanos{backward ? layers_[i].backward : layers_[i].forward};
      op.in = in;
      op.out = out;
      op.written = written;
      b.op(op);
    };
    for (const std::uint32_t i : order_) {
      reads(i);
      out.clear();
      written.clear();
      for (const std::int64_t bytes : layers_[i].activations) activation[i].push_back(alloc(bytes, false));
      out = activation[i];
      add(i, false);
    }
    // Backward of a layer reads what its forward read, its own output and that output's gradient; it makes
    // the gradient of its parameters and adds to those of its inputs. Then output and gradient end.
    for (auto it = order_.rbegin(); it != order_.rend(); ++it) {
      const std::uint32_t i = *it;
      reads(i);
      in.insert(in.end(), activation[i].begin(), activation[i].end());
      in.insert(in.end(), gradient[i].begin(), gradient[i].end());
      out.clear();
      written.clear();
      for (const std::uint32_t p : layers_[i].before) {
        if (gradient[p].empty()) {
          for (const std::int64_t bytes : layers_[p].activations) gradient[p].push_back(alloc(bytes, false));
          out.insert(out.end(), gradient[p].begin(), gradient[p].end());
          gradients_ += static_cast<std::int64_t>(gradient[p].size());
        } else if (std::find(out.begin(), out.end(), gradient[p].front()) == out.end()) {
          in.insert(in.end(), gradient[p].begin(), gradient[p].end());
          written.insert(written.end(), gradient[p].begin(), gradient[p].end());
        }
      }
      if (layers_[i].parameters != 0) {
        const StorageId g = alloc(layers_[i].parameters, false);
        b.tag(g, StorageClass::gradient, layers_[i].id);
        out.push_back(g);
        ++parameter_gradients_;
      }
      add(i, true);
      for (const StorageId s : activation[i]) b.free(s);
      for (const StorageId s : gradient[i]) b.free(s);
    }
    b.mark(MarkKind::iter_end, "", 0, Nanos{-1});
    return b.finish();
  }

  void report(ImportReport& r, const Trace* trace) const {
    std::int64_t forward = 0, backward = 0, activations = 0, parameters = 0;
    for (const Layer& l : layers_) {
      add_checked(forward, l.forward);
      add_checked(backward, l.backward);
      add_checked(parameters, l.parameters);
      for (const std::int64_t bytes : l.activations) add_checked(activations, bytes);
    }
    const auto count = static_cast<std::int64_t>(layers_.size());
    r.version = "graph.txt";
    r.add_found("layers", count);
    r.add_found("edges", edges_);
    r.add_found("forward_time_ns", forward);
    r.add_found("backward_time_ns", backward);
    r.add_found("device_time_ns", forward + backward);
    r.add_found("activation_bytes", activations);
    r.add_found("parameter_bytes", parameters);
    r.add_found("trace_operators", 2 * count);
    r.add_found("storages", trace != nullptr ? static_cast<std::int64_t>(trace->storages.size()) : 0);
    r.add_found("iterations", trace != nullptr ? 1 : 0);
    if (trace != nullptr) r.add_found("peak_bytes", trace->peak_bytes.value);
    r.baseline = Bytes{baseline_};
    r.derive("order of the layers", count,
             "the edges, then the number of the layer: the file lists them in any order");
    r.derive("backward operators", count, "each layer once more in reverse order, with its backward time");
    r.derive("storages read in the backward pass", count,
             "what the forward operator read, its output, and that output's gradient");
    r.derive("gradients of activations", gradients_, "as long as the activation; they end after their layer");
    r.derive("gradients of parameters", parameter_gradients_,
             "as long as the parameters; they live on for the optimizer, which is not in the file");
    r.derive("storages from before", parameter_gradients_, "the parameters");
    r.derive("digits below the unit", cut_, "cut off");
    r.repair("bytes that are not UTF-8", bad_utf8_, "replaced by U+FFFD");
    r.missing = {"optimizer", "host times", "scratch memory", "in-place operators: each layer has an output"};
    r.study = trace != nullptr ? StudyKind::full : StudyKind::none;
    r.study_reason = trace != nullptr ? "measured layer times and sizes; the backward pass's storages are "
                                        "derived from the layer graph"
                                      : "the file holds no layer";
  }

  Lines lines_;
  std::vector<Layer> layers_;
  std::unordered_map<std::string, std::uint32_t> ids_;
  std::vector<std::uint32_t> order_;
  std::map<std::string, SigId> signatures_;
  std::int64_t edges_ = 0, cut_ = 0, bad_utf8_ = 0, baseline_ = 0, gradients_ = 0, parameter_gradients_ = 0;
};

class PipedreamImporter final : public Importer {
 public:
  ImporterInfo info() const override {
    return {"pipedream", "PipeDream layer graphs (graph.txt): times, activations, parameters, edges", ""};
  }
  bool recognises(std::string_view head) const override {
    return head.substr(0, head.find('\n')).find(" -- forward_compute_time=") != std::string_view::npos;
  }
  ImportResult import(std::span<const ImportInput> inputs) const override { return Reader(inputs[0]).run(); }
};

}  // namespace
SWAPLAB_REGISTER_IMPORTER(PipedreamImporter)
}  // namespace swaplab
