// The training loop: iterations, micro-batches, validation, optimizer steps.
#include <algorithm>
#include <exception>
#include <filesystem>
#include <optional>

#include "trace/error.hpp"
#include "trace/synth/data_parallel.hpp"
#include "trace/synth/pipeline.hpp"
#include "trace/synth/synth.hpp"

namespace swaplab::synth {
namespace {

// A sink for building a model only to see its parameters.
class ShapesOnly final : public OperatorSink {
 public:
  SigId add_signature(const TraceBuilder::Signature&) override { return SigId{0}; }
  StorageId alloc(Bytes, std::string_view, bool) override { return StorageId{next_++}; }
  void tag(StorageId, StorageClass, std::string_view) override {}
  void resize(StorageId, Bytes, Bytes) override {}
  void free(StorageId) override {}
  void mark(MarkKind, std::string_view, std::int64_t) override {}
  void saved(std::span<const StorageId>, std::int64_t, std::int64_t) override {}
  void op(const TraceBuilder::Op&) override {}

 private:
  std::uint32_t next_ = 0;
};

ParameterPlan plan_of(const WorkloadConfig& config) {
  ShapesOnly sink;
  Eager rt(sink, config.device);
  std::vector<Parameter> parameters, buffers;
  Context c{rt, config, parameters, buffers, nullptr, {}, true, 0, {}, {}};
  const auto model = make_model(c);
  return plan_parameters(config, parameters, model->blocks);
}

class Program {
 public:
  Program(const WorkloadConfig& config, OperatorSink& sink)
      : config_(config),
        plan_(plan_of(config)),
        rt_(sink, config.device),
        c_{rt_, config, parameters_, buffers_, &plan_, {}, true, 0, {}, {}},
        model_(make_model(c_)),
        data_parallel_(c_, *model_, plan_),
        optimizer_(config.training, data_parallel_.updated()) {
    if (config.training.loss_scaling) {
      scale_ = rt_.external({1}, DType::float32);
      growth_ = rt_.external({1}, DType::int32);
    }
  }

  void run() {
    const TrainingConfig& t = config_.training;
    std::int64_t number = 0;
    for (std::int64_t i = 1; i <= t.iterations; ++i) {
      train(number++);
      if (t.validation_every > 0 && i % t.validation_every == 0) validate(number++);
    }
  }

 private:
  std::int64_t next_length() {
    const auto& lengths = config_.training.sequence;
    return lengths[micro_batches_++ % lengths.size()];
  }

  Batch make_batch(std::int64_t micro_batch) {
    const Eager::PhaseScope phase(rt_, Phase::data);
    Batch batch = model_->make_batch(c_, next_length());
    constexpr std::string_view names[] = {"input.", "target.", "noise."};
    for (std::size_t i = 0; i < batch.tensors.size(); ++i)
      rt_.tag(batch.tensors[i], StorageClass::data, std::string(names[i]) + std::to_string(micro_batch));
    return batch;
  }

  void begin_autocast() {
    if (config_.training.precision == Precision::bf16_autocast) rt_.begin_autocast(DType::bfloat16);
    if (config_.training.precision == Precision::fp16_autocast) rt_.begin_autocast(DType::float16);
  }

  Tensor forward(Batch batch) {
    ++c_.forward_passes;
    data_parallel_.begin_forward();
    begin_autocast();
    Tensor loss = model_->loss(c_, std::move(batch));
    rt_.end_autocast();
    return loss;
  }

  void train(std::int64_t number) {
    const TrainingConfig& t = config_.training;
    rt_.mark(MarkKind::iter_begin, "train", number);
    const Eager::PhaseScope phase(rt_, Phase::forward);
    data_parallel_.zero_gradients();
    Tensor total;
    if (config_.parallel.pipeline > 1) {
      total = run_pipeline(
          rt_, c_, *model_, data_parallel_, number,
          [this](std::int64_t micro_batch) { return make_batch(micro_batch); },
          [this](const Batch& batch, const Tensor& received) {
            ++c_.forward_passes;
            data_parallel_.begin_forward();
            begin_autocast();
            Tensor out = model_->stage(c_, batch, received);
            rt_.end_autocast();
            return out;
          });
    } else {
      for (std::int64_t mb = 0; mb < t.accumulation; ++mb) micro_batch(number, mb, total);
    }
    step(number, total);
    total.reset();
    data_parallel_.tag_gradients();
    rt_.mark(MarkKind::iter_end, "", number);
  }

  void micro_batch(std::int64_t number, std::int64_t mb, Tensor& total) {
    const TrainingConfig& t = config_.training;
    rt_.mark(MarkKind::micro_begin, "", mb);
    Tensor loss = forward(make_batch(mb));
    const Tensor value = detach(rt_, loss);
    total = total.defined() ? add(rt_, total, value) : value;
    if (t.accumulation > 1 || t.loss_division == LossDivision::always)
      loss = div_scalar(rt_, loss, t.accumulation);
    if (scale_.defined()) loss = mul(rt_, loss, scale_);
    rt_.record_saved(loss, number, mb);
    {
      const Eager::PhaseScope phase(rt_, Phase::backward);
      data_parallel_.set_last_micro_batch(mb + 1 == t.accumulation);
      Tensor ones = rt_.make(loss.shape(), loss.dtype());
      rt_.emit(Aten::ones_like, {&loss}, {&ones}, {false});
      rt_.backward(loss, ones);
    }
    loss.reset();
    rt_.mark(MarkKind::micro_end, "", mb);
  }

  void step(std::int64_t number, const Tensor& total) {
    const TrainingConfig& t = config_.training;
    const Eager::PhaseScope phase(rt_, Phase::optimizer);
    const Eager::GradMode no_grad(rt_, false);
    const bool skip = std::find(t.skip_steps.begin(), t.skip_steps.end(), number) != t.skip_steps.end();
    if (scale_.defined()) {
      optimizer_.unscale(rt_, scale_);
    } else if (!t.skip_steps.empty() && total.defined()) {
      check_finite(total);
    }
    if (skip) {
      rt_.mark(MarkKind::step_skipped, "", -1);
    } else {
      if (t.clip_gradients) optimizer_.clip(rt_);
      optimizer_.step(rt_);
      data_parallel_.finish_step();
    }
    if (scale_.defined())
      rt_.emit(Aten::amp_update_scale, {&scale_, &growth_, &scale_}, {&scale_}, {}, {&scale_, &growth_});
    if (!skip && t.read_loss && total.defined()) item(rt_, total);
  }

  // torch.isfinite(total).item()
  void check_finite(const Tensor& total) {
    const Tensor size = rt_.make({}, total.dtype());
    rt_.emit(Aten::abs, {&total}, {&size});
    const Tensor finite = rt_.make({}, DType::boolean);
    rt_.emit(Aten::ne_scalar, {&size}, {&finite});
    const Tensor number = rt_.make({}, DType::boolean);
    rt_.emit(Aten::eq, {&total, &total}, {&number});
    const Tensor both = rt_.make({}, DType::boolean);
    rt_.emit(Aten::mul, {&number, &finite}, {&both});
    item(rt_, both);
  }

  void validate(std::int64_t number) {
    rt_.mark(MarkKind::iter_begin, "val", number);
    {
      const Eager::PhaseScope phase(rt_, Phase::evaluation);
      const Eager::GradMode no_grad(rt_, false);
      c_.training = false;
      rt_.mark(MarkKind::micro_begin, "", 0);
      const Tensor loss = forward(make_batch(0));
      item(rt_, loss);
      c_.training = true;
    }
    rt_.mark(MarkKind::micro_end, "", 0);
    rt_.mark(MarkKind::iter_end, "", number);
  }

  const WorkloadConfig& config_;
  const ParameterPlan plan_;
  Eager rt_;
  std::vector<Parameter> parameters_, buffers_;
  Context c_;
  std::unique_ptr<Model> model_;
  DataParallel data_parallel_;
  Optimizer optimizer_;
  Tensor scale_, growth_;
  std::size_t micro_batches_ = 0;
};

}  // namespace

void run_workload(const WorkloadConfig& config, OperatorSink& sink) {
  check_workload(config);
  // What lives at the end keeps living in the trace: the last handles go into a sink that is closed.
  class Open final : public OperatorSink {
   public:
    Open(OperatorSink& target, const TrainingConfig& training) : target_(&target), training_(training) {}
    void close() { target_ = nullptr; }
    SigId add_signature(const TraceBuilder::Signature& s) override { return target_->add_signature(s); }
    StorageId alloc(Bytes bytes, std::string_view device, bool external) override {
      return target_->alloc(bytes, device, external);
    }
    void tag(StorageId s, StorageClass cls, std::string_view name) override { target_->tag(s, cls, name); }
    void resize(StorageId s, Bytes from, Bytes to) override { target_->resize(s, from, to); }
    void free(StorageId s) override {
      // While an error unwinds the program the trace is lost anyway, and its state may be half-way.
      if (target_ != nullptr && std::uncaught_exceptions() == 0) target_->free(s);
    }
    void mark(MarkKind kind, std::string_view text, std::int64_t number) override {
      if (kind == MarkKind::micro_end && !checked_) check_length();
      target_->mark(kind, text, number);
    }
    void saved(std::span<const StorageId> s, std::int64_t iteration, std::int64_t micro_batch) override {
      target_->saved(s, iteration, micro_batch);
    }
    void op(const TraceBuilder::Op& op) override {
      ++operators_;
      target_->op(op);
    }

   private:
    // Says after the first micro-batch what would fail after hours and hundreds of GB.
    void check_length() {
      checked_ = true;
      const double expected = static_cast<double>(operators_) * static_cast<double>(training_.accumulation) *
                              static_cast<double>(training_.iterations);
      if (expected <= static_cast<double>(kNever - 4)) return;
      throw Error(ErrorKind::input, "training.iterations and training.accumulation ask for about " +
                                        std::to_string(static_cast<std::uint64_t>(expected / 1e9)) +
                                        " billion operators; a trace holds 4.29 billion (2^32 - 5)");
    }

    OperatorSink* target_;
    const TrainingConfig& training_;
    std::uint64_t operators_ = 0;
    bool checked_ = false;
  };
  Open open(sink, config.training);
  Program program(config, open);
  program.run();
  open.close();
}

namespace {

void build(const WorkloadConfig& config, TraceBuilder& builder) {
  TraceHeader header;
  header.source = "synthetic";
  header.device = config.device;
  header.model = config.name;
  header.extra_json = "{\"cfg\":" + workload_json(config) + "}";
  builder.set_header(std::move(header));
  BuilderSink sink(builder);
  run_workload(config, sink);
}

}  // namespace

Trace synthesize(const WorkloadConfig& config) {
  TraceBuilder builder;
  build(config, builder);
  return builder.finish();
}

void synthesize_to_swt(const WorkloadConfig& config, const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  TraceBuilder builder = TraceBuilder::spooled(folder.empty() ? "." : folder);
  build(config, builder);
  builder.finish_swt(path);
}

}  // namespace swaplab::synth
