// ResNet of any published depth, as torchvision writes it: in-place ReLU, in-place residual addition.
#include "trace/error.hpp"
#include "trace/synth/model.hpp"
#include "trace/synth/vocabulary.hpp"

namespace swaplab::synth {
namespace {

class ConvNorm {
 public:
  ConvNorm() = default;
  ConvNorm(Context& c, const std::string& conv, const std::string& norm, std::int64_t in, std::int64_t out,
           std::int64_t kernel, std::int64_t stride)
      : stride_(stride), padding_(kernel / 2) {
    weight_ = c.parameter(conv + ".weight", {out, in, kernel, kernel});
    scale_ = c.parameter(norm + ".weight", {out});
    shift_ = c.parameter(norm + ".bias", {out});
    state_.running_mean = c.buffer(norm + ".running_mean", {out}, DType::float32);
    state_.running_var = c.buffer(norm + ".running_var", {out}, DType::float32);
    state_.batches = c.buffer(norm + ".num_batches_tracked", {}, DType::int64);
  }
  Tensor forward(Context& c, const Tensor& x) const {
    const Tensor y = conv2d(c.rt, x, weight_, {}, stride_, padding_);
    return batch_norm(c.rt, y, scale_, shift_, state_);
  }

 private:
  std::int64_t stride_ = 1, padding_ = 0;
  Tensor weight_, scale_, shift_;
  BatchNormState state_;
};

class ResidualBlock {
 public:
  ResidualBlock(Context& c, const std::string& name, std::int64_t in, std::int64_t width, std::int64_t stride,
                bool bottleneck) {
    const std::int64_t out = bottleneck ? 4 * width : width;
    const auto layer = [&](int i, std::int64_t from, std::int64_t to, std::int64_t kernel,
                           std::int64_t step) {
      const std::string number = std::to_string(i);
      layers_.emplace_back(c, name + ".conv" + number, name + ".bn" + number, from, to, kernel, step);
    };
    if (bottleneck) {
      layer(1, in, width, 1, 1);
      layer(2, width, width, 3, stride);
      layer(3, width, out, 1, 1);
    } else {
      layer(1, in, width, 3, stride);
      layer(2, width, width, 3, 1);
    }
    projects_ = stride != 1 || in != out;
    if (projects_) shortcut_ = ConvNorm(c, name + ".down.0", name + ".down.1", in, out, 1, stride);
  }

  Tensor forward(Context& c, const Tensor& x) const {
    Tensor y = x;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      y = layers_[i].forward(c, y);
      if (i + 1 < layers_.size()) y = relu_(c.rt, y);
    }
    if (projects_) {
      const Tensor side = shortcut_.forward(c, x);
      y = add_inplace(c.rt, y, side);
    } else {
      y = add_inplace(c.rt, y, x);
    }
    return relu_(c.rt, y);
  }

 private:
  std::vector<ConvNorm> layers_;
  ConvNorm shortcut_;
  bool projects_ = false;
};

struct Depth {
  std::int64_t depth;
  bool bottleneck;
  std::int64_t counts[4];
};
constexpr Depth kDepths[] = {{18, false, {2, 2, 2, 2}},
                             {34, false, {3, 4, 6, 3}},
                             {50, true, {3, 4, 6, 3}},
                             {101, true, {3, 4, 23, 3}},
                             {152, true, {3, 8, 36, 3}}};

class ResNet final : public Model {
 public:
  explicit ResNet(Context& c) {
    const ModelConfig& m = c.config.model;
    const Depth* depth = nullptr;
    for (const Depth& d : kDepths)
      if (d.depth == m.depth) depth = &d;
    if (depth == nullptr) throw Error(ErrorKind::input, "model.depth must be 18, 34, 50, 101 or 152");
    stem_ = ConvNorm(c, "stem", "bn", m.in_channels, 64, 7, 2);
    std::int64_t in = 64, width = 64;
    std::size_t number = 0;
    for (const std::int64_t count : depth->counts) {
      for (std::int64_t i = 0; i < count; ++i) {
        const std::size_t begin = c.parameters.size();
        const std::int64_t stride = i == 0 && width > 64 ? 2 : 1;
        block_list_.emplace_back(c, "blocks." + std::to_string(number++), in, width, stride,
                                 depth->bottleneck);
        blocks.push_back({begin, c.parameters.size()});
        in = depth->bottleneck ? 4 * width : width;
      }
      width *= 2;
    }
    head_ = Linear(c, "fc", in, m.classes, true);
  }

  Batch make_batch(Context& c, std::int64_t) override { return image_batch(c, c.config.model.classes); }

  Tensor loss(Context& c, Batch batch) override {
    Eager& rt = c.rt;
    Tensor x = stem_.forward(c, batch.tensors[0]);
    x = relu_(rt, x);
    x = max_pool2d(rt, x, 3, 2, 1);
    for (std::size_t i = 0; i < block_list_.size(); ++i) {
      const auto run = [this, i, &c](const std::vector<Tensor>& in) {
        Tensor y = before_block ? before_block(i, in[0]) : in[0];
        y = block_list_[i].forward(c, y);
        return after_block ? after_block(i, y) : y;
      };
      x = c.recomputes(i) ? checkpoint(rt, run, {x}) : run({x});
    }
    x = mean(rt, x, {2, 3}, false);
    const Tensor logits = head_.forward(c, x);
    x.reset();
    return cross_entropy(rt, logits, batch.tensors[1], false);
  }

 private:
  ConvNorm stem_;
  std::vector<ResidualBlock> block_list_;
  Linear head_;
};

}  // namespace

std::unique_ptr<Model> make_resnet(Context& c) {
  return std::make_unique<ResNet>(c);
}

}  // namespace swaplab::synth
