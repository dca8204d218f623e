// Operators of a profiler that was switched on: they open and close a range around every few operators.
#include "trace/perturb/perturbation.hpp"

namespace swaplab {
namespace {

struct HookParams {
  std::int64_t every = 50;
  std::int64_t host_ns = 20'000;
};

class ProfilerHooks final : public Perturbation {
 public:
  explicit ProfilerHooks(HookParams params) : params_(params) {}
  bool applies(const EditIteration& iteration) const override { return !iteration.inserted; }
  void apply(EditableTrace& edit, std::size_t index, Random&) const override {
    Items& items = edit.iterations[index].items;
    Items result;
    std::int64_t inside = 0;
    std::uint32_t last = 0;
    const auto hook = [&](const char* name) {
      EditSignature signature;
      signature.name = name;
      signature.flop = 0;
      signature.read = signature.written = Bytes{0};
      signature.view = true;  // no kernel, no bytes: host time only
      EditOp op;
      op.signature = edit.add_signature(signature);
      op.phase = edit.op(last).phase;
      op.device_time = edit.op(last).device_time.value >= 0 ? Nanos{0} : Nanos{-1};
      op.host_time = Nanos{params_.host_ns};
      edit.open_change("profiler_hooks", index);
      result.push_back({ItemKind::op, edit.add_op(std::move(op))});
      edit.close_change();
    };
    for (const Item& item : items) {
      if (item.kind == ItemKind::op) {
        last = item.arg;
        if (inside == 0) hook("profiler._record_function_enter_new.default");
      }
      result.push_back(item);
      if (item.kind == ItemKind::op && ++inside == params_.every) {
        hook("profiler._record_function_exit._RecordFunction");
        inside = 0;
      }
    }
    if (inside > 0) {
      // Before the iteration's end mark.
      const Item end = result.back();
      if (end.kind == ItemKind::mark) result.pop_back();
      hook("profiler._record_function_exit._RecordFunction");
      if (end.kind == ItemKind::mark) result.push_back(end);
    }
    items = std::move(result);
  }

 private:
  HookParams params_;
};

SWAPLAB_REGISTER_PERTURBATION(ProfilerHooks, HookParams,
                              {"profiler_hooks", "range operators of a profiler around every few operators"},
                              {count_field("every", &HookParams::every, 1, 1'000'000, "operators per range"),
                               count_field("host_ns", &HookParams::host_ns, 0, 1'000'000'000,
                                           "host time of a hook in ns")});

}  // namespace
}  // namespace swaplab
