#include "trace/synth/pipeline.hpp"

#include <algorithm>
#include <deque>

namespace swaplab::synth {
namespace {

struct InFlight {
  Tensor received, result;
};

}  // namespace

Tensor run_pipeline(Eager& rt, Context& c, Model& model, DataParallel& data_parallel, std::int64_t iteration,
                    const BatchMaker& make_batch, const StageForward& forward) {
  const ParallelConfig& p = c.config.parallel;
  const TrainingConfig& t = c.config.training;
  const bool first = p.stage == 0, last = p.stage == p.pipeline - 1;
  const std::int64_t count = t.accumulation;
  const std::int64_t warm_up = std::min(count, p.pipeline - p.stage - 1);
  const DType format = t.precision == Precision::bf16 ? DType::bfloat16 : DType::float32;
  std::deque<InFlight> running;
  Tensor total;
  std::int64_t forwarded = 0, returned = 0;

  const auto run_forward = [&] {
    rt.mark(MarkKind::micro_begin, "", forwarded);
    const Batch batch = make_batch(forwarded);
    InFlight micro;
    if (!first) {
      micro.received = receive(rt, model.boundary(c, batch.tensors[0].size(1)), format, p.pipeline);
      micro.received.set_requires_grad(true);
    }
    micro.result = forward(batch, micro.received);
    if (last) {
      const Tensor value = detach(rt, micro.result);
      total = total.defined() ? add(rt, total, value) : value;
      micro.result = div_scalar(rt, micro.result, count);
      rt.record_saved(micro.result, iteration, forwarded);
    } else {
      const Tensor sent = to(rt, micro.result, format);
      micro.result = sent;
      send(rt, micro.result, p.pipeline);
    }
    running.push_back(std::move(micro));
    rt.mark(MarkKind::micro_end, "", forwarded++);
  };
  const auto run_backward = [&] {
    const Eager::PhaseScope phase(rt, Phase::backward);
    InFlight micro = std::move(running.front());
    running.pop_front();
    Tensor gradient;
    if (last) {
      gradient = rt.make(micro.result.shape(), micro.result.dtype());
      rt.emit(Aten::ones_like, {&micro.result}, {&gradient}, {false});
    } else {
      gradient = receive(rt, micro.result.shape(), micro.result.dtype(), p.pipeline);
    }
    data_parallel.set_last_micro_batch(++returned == count);
    rt.backward(micro.result, std::move(gradient));
    micro.result.reset();
    if (!first) send(rt, micro.received.impl()->grad, p.pipeline);
  };

  for (std::int64_t i = 0; i < warm_up; ++i) run_forward();
  while (forwarded < count) {
    run_forward();
    run_backward();
  }
  while (!running.empty()) run_backward();
  return total;
}

}  // namespace swaplab::synth
