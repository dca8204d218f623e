// G10's kernels.config: kernels in program order with their tensors, sizes and times in GPU cycles.
#include <algorithm>
#include <charconv>
#include <map>
#include <unordered_map>
#include <utility>

#include "trace/builder.hpp"
#include "trace/error.hpp"
#include "trace/import/decimal.hpp"
#include "trace/import/g10_tables.hpp"
#include "trace/import/importer.hpp"
#include "trace/import/lines.hpp"
#include "trace/import/sum.hpp"

namespace swaplab {
namespace {

constexpr std::int64_t kMaxCycles = std::int64_t{1} << 50;

struct Tensor {
  std::int64_t bytes = 0;
  bool weight = false;
  std::uint32_t first = 0, last = 0;
  bool made = false;  // first seen as an output
  bool allocated = false;
  StorageId storage{};
};
struct Kernel {
  std::string name;
  std::int64_t cycles = -1, time = -1, scratch = -1;  // time and scratch: of the tables, if given
  std::vector<std::uint32_t> in{}, out{};
};

class Reader {
 public:
  explicit Reader(std::span<const ImportInput> inputs) : inputs_(inputs), lines_(inputs[0]) {}

  ImportResult run() {
    std::string_view line;
    while (lines_.next(line)) {
      if (line.rfind("Kernel ID: ", 0) == 0) {
        kernel(line);
      } else if (line.rfind("Parent ", 0) == 0 || line.rfind("____", 0) == 0 || line.starts_with('(') ||
                 line.find_first_not_of(" \t") == std::string_view::npos) {
        continue;
      } else if (line.rfind("Execution Time: ", 0) == 0) {
        current().cycles = number(line.substr(16), "a number of cycles", kMaxCycles);
        add_checked(cycles_, current().cycles);
      } else if (line.rfind("Input Tensors:", 0) == 0) {
        list_ = &current().in;
      } else if (line.rfind("Output Tensors:", 0) == 0) {
        list_ = &current().out;
      } else if (line.rfind("Workspace", 0) == 0) {
        list_ = nullptr;
      } else if (line.rfind("tensor", 0) == 0) {
        tensor(line);
      } else {
        lines_.fail("expected a line of a kernel block, found '" + std::string(line.substr(0, 40)) + "'");
      }
    }
    for (const Kernel& k : kernels_) {
      if (k.cycles < 0) lines_.fail("kernel '" + k.name + "' has no 'Execution Time'");
    }
    for (const ImportInput& input : inputs_.subspan(1)) {
      if (g10::looks_like_table(input.head())) {
        table(input);
      } else {
        tensor_list(input);
      }
    }
    ImportResult result;
    if (!kernels_.empty()) result.trace = emit();
    report(result.report, result.trace ? &*result.trace : nullptr);
    return result;
  }

 private:
  std::int64_t number(std::string_view text, const char* what, std::int64_t most) {
    const auto value = unsigned_integer(text);
    if (!value || *value > static_cast<std::uint64_t>(most))
      lines_.fail(std::string("expected ") + what + ", found '" + std::string(text.substr(0, 40)) + "'");
    return static_cast<std::int64_t>(*value);
  }
  Kernel& current() {
    if (kernels_.empty()) lines_.fail("expected 'Kernel ID: ' first");
    return kernels_.back();
  }
  void kernel(std::string_view line) {
    const auto name = line.find(", Name: ");
    if (name == std::string_view::npos) lines_.fail("expected 'Kernel ID: N, Name: NAME'");
    if (number(line.substr(11, name - 11), "a kernel number", kMaxCycles) !=
        static_cast<std::int64_t>(kernels_.size()))
      lines_.fail("expected kernel " + std::to_string(kernels_.size()));
    kernels_.push_back({std::string(line.substr(name + 8))});
    list_ = nullptr;
  }
  void tensor(std::string_view line) {
    if (list_ == nullptr) lines_.fail("a tensor outside of 'Input Tensors:' and 'Output Tensors:'");
    g10::Tensor parsed{};
    if (!g10::parse_tensor(line, parsed))
      lines_.fail(
          "expected 'tensorN Is weight (global)?: 0, Size in byte: B, Range:A--Z' with B = Z - A of at most "
          "2^50");
    const auto [id, bytes, is_weight] = parsed;
    const auto [it, inserted] = ids_.try_emplace(id, static_cast<std::uint32_t>(tensors_.size()));
    const auto here = static_cast<std::uint32_t>(kernels_.size() - 1);
    if (inserted) {
      tensors_.push_back({bytes, is_weight, here, here, list_ == &current().out && !is_weight, false, {}});
    } else if (tensors_[it->second].bytes != bytes) {
      lines_.fail("tensor " + std::to_string(id) + " has " + std::to_string(bytes) + " B here and " +
                  std::to_string(tensors_[it->second].bytes) + " B before");
    }
    tensors_[it->second].last = here;
    list_->push_back(it->second);
  }

  // A table counts for the kernels' times when it agrees with their cycles; the others are times under page
  // faults, which only a model of faults could use.
  void table(const ImportInput& input) {
    const g10::Table t = g10::read_table(input);
    if (t.value.size() != kernels_.size())
      throw Error(ErrorKind::input, input.name() + ": has " + std::to_string(t.value.size()) + " rows, but " +
                                        inputs_[0].name() + " has " + std::to_string(kernels_.size()) +
                                        " kernels");
    if (t.bytes) {
      if (workspace_bytes_ >= 0)
        throw Error(ErrorKind::usage, input.name() + ": a second table of workspaces");
      for (std::size_t i = 0; i < kernels_.size(); ++i) kernels_[i].scratch = t.value[i];
      workspace_bytes_ = t.sum;
      return;
    }
    bool agrees = true;
    for (std::size_t i = 0; i < kernels_.size(); ++i)
      agrees &= std::abs(t.value[i] - nanos(kernels_[i].cycles)) <= 1;
    if (!agrees) {
      fault_rows_ += static_cast<std::int64_t>(kernels_.size());
      return;
    }
    for (std::size_t i = 0; i < kernels_.size(); ++i) kernels_[i].time = t.value[i];
    timed_ = static_cast<std::int64_t>(kernels_.size());
  }
  void tensor_list(const ImportInput& input) {
    if (std::exchange(has_tensor_list_, true))
      throw Error(ErrorKind::usage, input.name() + ": a second tensors.config");
    for (const g10::Tensor& t : g10::read_tensors(input)) {
      const auto found = ids_.find(t.id);
      if (found == ids_.end()) {
        ++unused_tensors_;
      } else if (tensors_[found->second].bytes != t.bytes || tensors_[found->second].weight != t.weight) {
        throw Error(ErrorKind::input, input.name() + ": tensor" + std::to_string(t.id) + " has " +
                                          std::to_string(t.bytes) + " B, weight " + (t.weight ? "1" : "0") +
                                          ", unlike in " + inputs_[0].name());
      } else {
        ++checked_tensors_;
      }
    }
  }
  static std::int64_t nanos(std::int64_t cycles) { return cycles / 6 * 5 + cycles % 6 * 5 / 6; }  // 1.2 GHz

  Trace emit() {
    TraceBuilder b;
    TraceHeader header;
    header.source = "import-g10";
    header.device = "cuda";
    b.set_header(header);
    for (Tensor& t : tensors_) {
      if (t.made) continue;
      t.storage = b.alloc(Bytes{t.bytes}, "cuda:0", true);
      if (t.weight) b.tag(t.storage, StorageClass::parameter, "");
      add_checked(baseline_, t.bytes);
      ++external_;
    }
    std::vector<std::vector<std::uint32_t>> ends(kernels_.size());
    for (std::uint32_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].made) ends[tensors_[i].last].push_back(i);
    }
    std::map<std::pair<std::string, std::int64_t>, SigId> signatures;
    b.mark(MarkKind::iter_begin, "train", 0, Nanos{-1});
    for (std::uint32_t k = 0; k < kernels_.size(); ++k) {
      const Kernel& kernel = kernels_[k];
      std::vector<StorageId> in, out, written;
      for (const std::uint32_t t : kernel.out) {
        Tensor& tensor = tensors_[t];
        if (!tensor.made || tensor.first != k) continue;
        if (!std::exchange(tensor.allocated, true))
          tensor.storage = b.alloc(Bytes{tensor.bytes}, "cuda:0", false);
        out.push_back(tensor.storage);
      }
      for (const std::uint32_t t : kernel.in) {
        if (!(tensors_[t].made && tensors_[t].first == k)) in.push_back(tensors_[t].storage);
      }
      for (const std::uint32_t t : kernel.out) {
        if (tensors_[t].made && tensors_[t].first == k) continue;
        in.push_back(tensors_[t].storage);
        written.push_back(tensors_[t].storage);
      }
      const auto [it, inserted] = signatures.try_emplace({kernel.name, kernel.scratch});
      if (inserted) {
        TraceBuilder::Signature s;
        s.name = kernel.name;
        s.scratch = Bytes{kernel.scratch};
        it->second = b.add_signature(s);
      }
      TraceBuilder::Op op;
      op.signature = it->second;
      const bool backward = kernel.name.find("Backward") != std::string::npos;
      op.phase = backward                                              ? Phase::backward
                 : kernel.name.find("Apply_Grad") != std::string::npos ? Phase::optimizer
                                                                       : Phase::forward;
      backward_ += backward ? 1 : 0;
      op.device_time = Nanos{kernel.time >= 0 ? kernel.time : nanos(kernel.cycles)};
      add_checked(time_, op.device_time.value);
      op.in = in;
      op.out = out;
      op.written = written;
      b.op(op);
      for (const std::uint32_t t : ends[k]) b.free(tensors_[t].storage);
    }
    b.mark(MarkKind::iter_end, "", 0, Nanos{-1});
    return b.finish();
  }

  void report(ImportReport& r, const Trace* trace) const {
    r.version = "kernels.config";
    r.add_found("kernels", static_cast<std::int64_t>(kernels_.size()));
    r.add_found("cycles", cycles_);
    r.add_found("tensors", static_cast<std::int64_t>(tensors_.size()));
    r.add_found("device_time_ns", time_);
    r.add_found("iterations", trace != nullptr ? 1 : 0);
    r.add_found("storages", static_cast<std::int64_t>(tensors_.size()));
    if (trace != nullptr) r.add_found("peak_bytes", trace->peak_bytes.value);
    r.baseline = Bytes{baseline_};
    r.derive("times", static_cast<std::int64_t>(kernels_.size()) - timed_,
             "cycles of 1.2 GHz, cut to whole ns");
    r.derive("times of the table", timed_, "it agrees with the cycles to 1 ns");
    r.derive("tensors checked", checked_tensors_, "tensors.config says the same");
    r.drop("tensors that no kernel uses", unused_tensors_, "they are in tensors.config only");
    r.drop("times under page faults", fault_rows_, "a table that does not agree with the cycles");
    r.derive("storages from before", external_, "weights, and inputs that no kernel makes");
    r.derive("frees", static_cast<std::int64_t>(tensors_.size()) - external_,
             "the file has none: a tensor ends after its last use");
    r.derive("backward operators", backward_, "by their name");
    if (workspace_bytes_ >= 0) r.add_found("workspace_bytes", workspace_bytes_);
    r.missing = {"host times"};
    if (workspace_bytes_ == 0)
      r.missing.push_back("workspaces: the table of bytes per kernel holds only 0 (workspace_bytes 0)");
    if (workspace_bytes_ < 0) r.missing.push_back("workspaces: give the table of bytes per kernel too");
    r.study = trace != nullptr ? StudyKind::full : StudyKind::none;
    r.study_reason = trace != nullptr ? "kernels, tensors and times" : "the file holds no kernel";
    if (std::any_of(kernels_.begin(), kernels_.end(),
                    [](const Kernel& k) { return k.name.find("Conv") != std::string::npos; }))
      r.study_reason += "; CNN totals of this source are implausible, compare only relatively";
  }

  std::span<const ImportInput> inputs_;
  Lines lines_;
  std::vector<Kernel> kernels_;
  std::vector<std::uint32_t>* list_ = nullptr;
  bool has_tensor_list_ = false;
  std::unordered_map<std::uint64_t, std::uint32_t> ids_;
  std::vector<Tensor> tensors_;
  std::int64_t cycles_ = 0, time_ = 0, baseline_ = 0, external_ = 0, backward_ = 0;
  std::int64_t timed_ = 0, fault_rows_ = 0, workspace_bytes_ = -1, checked_tensors_ = 0, unused_tensors_ = 0;
};

class G10Importer final : public Importer {
 public:
  ImporterInfo info() const override {
    return {"g10", "G10 kernels.config: kernels, tensors, cycles; with its tables also workspaces",
            "g10-table g10-tensors"};
  }
  bool recognises(std::string_view head) const override { return head.rfind("Kernel ID: ", 0) == 0; }
  ImportResult import(std::span<const ImportInput> inputs) const override { return Reader(inputs).run(); }
};

}  // namespace
SWAPLAB_REGISTER_IMPORTER(G10Importer)
}  // namespace swaplab
