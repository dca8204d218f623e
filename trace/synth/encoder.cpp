// Encoder transformers: BERT's masked language model (post-norm) and ViT (pre-norm).
#include "trace/synth/model.hpp"
#include "trace/synth/vocabulary.hpp"

namespace swaplab::synth {
namespace {

class EncoderBlock {
 public:
  EncoderBlock(Context& c, const std::string& name, bool pre_norm) : pre_norm_(pre_norm) {
    attention_ = Attention(c, name + ".attention", false);
    norm1_ = Normalization(c, name + ".norm1", c.config.model.hidden);
    mlp_ = Mlp(c, name + ".mlp", c.config.model.hidden, c.config.model.ffn);
    norm2_ = Normalization(c, name + ".norm2", c.config.model.hidden);
  }

  Tensor forward(Context& c, const Tensor& given) const {
    Tensor x = given;
    {
      Tensor y = pre_norm_ ? norm1_.forward(c, x) : x;
      y = attention_.forward(c, std::move(y));
      y = dropout(c, y);
      x = add(c.rt, x, y);
    }
    if (!pre_norm_) x = norm1_.forward(c, x);
    Tensor y = pre_norm_ ? norm2_.forward(c, x) : x;
    y = mlp_.forward(c, std::move(y));
    y = dropout(c, y);
    x = add(c.rt, x, y);
    y.reset();
    return pre_norm_ ? x : norm2_.forward(c, x);
  }

 private:
  bool pre_norm_;
  Attention attention_;
  Normalization norm1_, norm2_;
  Mlp mlp_;
};

// What both encoders share: a list of blocks, sharded and recomputed one by one.
class EncoderModel : public Model {
 protected:
  void add_blocks(Context& c, bool pre_norm) {
    for (std::int64_t i = 0; i < c.config.model.layers; ++i) {
      const std::size_t begin = c.parameters.size();
      block_list_.emplace_back(c, "blocks." + std::to_string(i), pre_norm);
      blocks.push_back({begin, c.parameters.size()});
    }
  }

  Tensor run_blocks(Context& c, Tensor x) const {
    for (std::size_t i = 0; i < block_list_.size(); ++i) {
      const auto run = [this, i, &c](const std::vector<Tensor>& in) {
        Tensor y = before_block ? before_block(i, in[0]) : in[0];
        y = block_list_[i].forward(c, y);
        return after_block ? after_block(i, y) : y;
      };
      x = c.recomputes(i) ? checkpoint(c.rt, run, {x}) : run({x});
    }
    return x;
  }

 private:
  std::vector<EncoderBlock> block_list_;
};

class Bert final : public EncoderModel {
 public:
  explicit Bert(Context& c) {
    const ModelConfig& m = c.config.model;
    words_ = c.parameter("embeddings.word.weight", {m.vocab, m.hidden});
    places_ = c.parameter("embeddings.position.weight", {m.max_positions, m.hidden});
    types_ = c.parameter("embeddings.type.weight", {2, m.hidden});
    norm_ = Normalization(c, "embeddings.norm", m.hidden);
    add_blocks(c, false);
    transform_ = Linear(c, "head.transform", m.hidden, m.hidden, true);
    head_norm_ = Normalization(c, "head.norm", m.hidden);
    head_ = m.tied_head ? words_ : c.parameter("head.weight", {m.vocab, m.hidden});
  }

  Batch make_batch(Context& c, std::int64_t length) override {
    return language_batch(c, length, c.config.model.vocab);
  }

  Tensor loss(Context& c, Batch batch) override {
    Eager& rt = c.rt;
    const Tensor& tokens = batch.tensors[0];
    const Tensor places = rt.make({tokens.size(1)}, DType::int64);
    rt.emit(Aten::arange, {}, {&places}, {tokens.size(1), false});
    const Tensor kinds = rt.make(tokens.shape(), DType::int64);
    rt.emit(Aten::zeros_like, {&tokens}, {&kinds}, {false});
    Tensor x = embedding(rt, words_, tokens);
    const Tensor type = embedding(rt, types_, kinds);
    x = add(rt, x, type);
    const Tensor place = embedding(rt, places_, places);
    x = add(rt, x, place);
    x = norm_.forward(c, x);
    x = dropout(c, x);
    x = run_blocks(c, std::move(x));
    x = transform_.forward(c, x);
    x = gelu(rt, x);
    x = head_norm_.forward(c, x);
    return head_loss(c, std::move(x), head_, batch.tensors[1]);
  }

 private:
  Tensor words_, places_, types_, head_;
  Normalization norm_, head_norm_;
  Linear transform_;
};

class Vit final : public EncoderModel {
 public:
  explicit Vit(Context& c) {
    const ModelConfig& m = c.config.model;
    const std::int64_t side = m.image_size / m.patch;
    class_token_ = c.parameter("cls_token", {1, 1, m.hidden});
    places_ = c.parameter("pos_embed", {1, side * side + 1, m.hidden});
    patch_ = c.parameter("patch.weight", {m.hidden, m.in_channels, m.patch, m.patch});
    patch_bias_ = c.parameter("patch.bias", {m.hidden});
    add_blocks(c, true);
    norm_ = Normalization(c, "norm", m.hidden);
    head_ = Linear(c, "head", m.hidden, m.classes, true);
  }

  Batch make_batch(Context& c, std::int64_t) override { return image_batch(c, c.config.model.classes); }

  Tensor loss(Context& c, Batch batch) override {
    Eager& rt = c.rt;
    const ModelConfig& m = c.config.model;
    Tensor x = conv2d(rt, batch.tensors[0], patch_, patch_bias_, m.patch, 0);
    x = reshape(rt, x, {x.size(0), x.size(1), x.size(2) * x.size(3)});
    x = transpose(rt, x, 1, 2);
    const Tensor token = expand(rt, class_token_, {x.size(0), 1, m.hidden});
    const Tensor parts[] = {to(rt, token, x.dtype()), x};
    x = cat(rt, parts, 1);
    x = add(rt, x, places_);
    x = dropout(c, x);
    x = run_blocks(c, std::move(x));
    x = norm_.forward(c, x);
    const Tensor first = slice(rt, x, 1, 0, 1);
    const Tensor row = view(rt, first, {first.size(0), m.hidden});
    const Tensor logits = head_.forward(c, row);
    return cross_entropy(rt, logits, batch.tensors[1], m.upcast_logits && logits.dtype() != DType::float32);
  }

 private:
  Tensor class_token_, places_, patch_, patch_bias_;
  Normalization norm_;
  Linear head_;
};

}  // namespace

std::unique_ptr<Model> make_encoder(Context& c) {
  return std::make_unique<Bert>(c);
}

std::unique_ptr<Model> make_vit(Context& c) {
  return std::make_unique<Vit>(c);
}

}  // namespace swaplab::synth
