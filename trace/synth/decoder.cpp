// Decoder transformers: GPT-2 and GPT-3, Llama, and their mixture-of-experts relatives.
#include "trace/error.hpp"
#include "trace/synth/experts.hpp"
#include "trace/synth/model.hpp"
#include "trace/synth/vocabulary.hpp"

namespace swaplab::synth {
namespace {

class Block {
 public:
  Block(Context& c, const std::string& name, std::uint64_t index) {
    const ModelConfig& m = c.config.model;
    norm1_ = Normalization(c, name + ".norm1", m.hidden);
    norm2_ = Normalization(c, name + ".norm2", m.hidden);
    attention_ = Attention(c, name + ".attention", true);
    moe_ = m.experts.count > 0;
    if (moe_)
      experts_ = Experts(c, name + ".mlp", index);
    else
      mlp_ = Mlp(c, name + ".mlp", m.hidden, m.ffn);
  }

  Tensor forward(Context& c, const Tensor& given, std::vector<Tensor>& balance) const {
    Tensor x = given;
    {
      Tensor y = norm1_.forward(c, x);
      y = attention_.forward(c, std::move(y));
      y = dropout(c, y);
      x = add(c.rt, x, y);
    }
    Tensor y = norm2_.forward(c, x);
    y = moe_ ? experts_.forward(c, std::move(y), balance) : mlp_.forward(c, std::move(y));
    y = dropout(c, y);
    return add(c.rt, x, y);
  }

 private:
  Normalization norm1_, norm2_;
  Attention attention_;
  Mlp mlp_;
  Experts experts_;
  bool moe_ = false;
};

class Decoder final : public Model {
 public:
  explicit Decoder(Context& c) {
    const ModelConfig& m = c.config.model;
    const ParallelConfig& p = c.config.parallel;
    first_ = p.stage == 0;
    last_ = p.stage == p.pipeline - 1;
    if (first_) {
      tokens_ = c.parameter("wte.weight", {m.vocab / p.tensor, m.hidden});
      if (m.positions == Positions::learned)
        positions_ = c.parameter("wpe.weight", {m.max_positions, m.hidden});
    }
    const std::int64_t share = m.layers / p.pipeline;
    for (std::int64_t i = 0; i < share; ++i) {
      const std::size_t begin = c.parameters.size();
      const std::int64_t layer = p.stage * share + i;
      block_list_.emplace_back(c, "blocks." + std::to_string(layer), static_cast<std::uint64_t>(layer));
      blocks.push_back({begin, c.parameters.size()});
    }
    if (last_) {
      norm_ = Normalization(c, "norm", m.hidden);
      // A tied head on another stage than the embedding has its own copy, as in Megatron.
      head_ = m.tied_head && first_ ? tokens_ : c.parameter("head.weight", {m.vocab / p.tensor, m.hidden});
    }
  }

  Batch make_batch(Context& c, std::int64_t length) override {
    return language_batch(c, length, c.config.model.vocab);
  }

  Tensor loss(Context& c, Batch batch) override { return stage(c, batch, {}); }

  bool has_stages() const override { return true; }

  Shape boundary(const Context& c, std::int64_t length) const override {
    const ParallelConfig& p = c.config.parallel;
    return {c.config.training.batch, p.sequence ? length / p.tensor : length, c.config.model.hidden};
  }

  Tensor stage(Context& c, const Batch& batch, const Tensor& received) override {
    Eager& rt = c.rt;
    const std::int64_t length = batch.tensors[0].size(1);
    if (c.config.model.positions == Positions::rotary) rotary_tables(c, length);
    Tensor x = first_ ? embed(c, batch.tensors[0]) : received;
    std::vector<Tensor> balance;
    for (std::size_t i = 0; i < block_list_.size(); ++i) {
      const auto run = [this, i, &c](const Tensor& in, std::vector<Tensor>& losses) {
        Tensor y = before_block ? before_block(i, in) : in;
        y = block_list_[i].forward(c, y, losses);
        return after_block ? after_block(i, y) : y;
      };
      if (c.recomputes(i)) {
        // The balancing loss of a recomputed block stays inside its segment.
        x = checkpoint(rt,
                       [run](const std::vector<Tensor>& in) {
                         std::vector<Tensor> inner;
                         return run(in[0], inner);
                       },
                       {x});
      } else {
        x = run(x, balance);
      }
    }
    if (!last_) return x;
    x = norm_.forward(c, x);
    return finish(c, std::move(x), batch.tensors[1], balance);
  }

 private:
  Tensor embed(Context& c, const Tensor& tokens) const {
    Eager& rt = c.rt;
    const ParallelConfig& p = c.config.parallel;
    Tensor places;
    if (positions_.defined()) {
      places = rt.make({tokens.size(1)}, DType::int64);
      rt.emit(Aten::arange, {}, {&places}, {tokens.size(1), false});
    }
    Tensor x = p.tensor > 1 ? vocabulary_embedding(c, tokens_, tokens) : embedding(rt, tokens_, tokens);
    if (positions_.defined()) {
      const Tensor y = embedding(rt, positions_, places);
      x = add(rt, x, y);
    }
    if (p.sequence) {  // each rank keeps its part of the sequence
      const Tensor part = slice(rt, x, 1, 0, x.size(1) / p.tensor);
      x = clone(rt, part);
    }
    return dropout(c, x);
  }

  Tensor finish(Context& c, Tensor x, const Tensor& targets, const std::vector<Tensor>& balance) const {
    Eager& rt = c.rt;
    Tensor loss = head_loss(c, std::move(x), head_, targets);
    for (const Tensor& b : balance) {
      const Tensor scaled = mul_scalar(rt, b);
      loss = add(rt, loss, scaled);
    }
    return loss;
  }

  void rotary_tables(Context& c, std::int64_t length) const {
    Eager& rt = c.rt;
    const Eager::GradMode no_grad(rt, false);
    const std::int64_t size = c.config.model.hidden / c.config.model.heads;
    const Tensor places = rt.make({length}, DType::int64);
    rt.emit(Aten::arange, {}, {&places}, {length, false});
    const Tensor steps = rt.make({size / 2}, DType::float32);
    rt.emit(Aten::arange, {}, {&steps}, {0, size, 2, false});
    const Tensor column = unsqueeze(rt, places, 1);
    const Tensor angles = mul(rt, column, steps);
    const Tensor halves[] = {angles, angles};
    const Tensor all = cat(rt, halves, -1);
    const DType format = c.config.training.precision == Precision::fp32 ? DType::float32 : DType::bfloat16;
    const auto table = [&](Aten op) {
      const Tensor wide = rt.make(all.shape(), DType::float32);
      rt.emit(op, {&all}, {&wide});
      return to(rt, wide, c.config.training.precision == Precision::fp16_autocast ? DType::float16 : format);
    };
    c.cosine = table(Aten::cos);
    c.sine = table(Aten::sin);
  }

  Tensor tokens_, positions_, head_;
  std::vector<Block> block_list_;
  Normalization norm_;
  bool first_ = true, last_ = true;
};

}  // namespace

std::unique_ptr<Model> make_decoder(Context& c) {
  return std::make_unique<Decoder>(c);
}

}  // namespace swaplab::synth
