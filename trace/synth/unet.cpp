// U-Net of denoising diffusion: residual blocks with a time embedding, attention at the lower resolutions.
#include "trace/synth/model.hpp"

namespace swaplab::synth {
namespace {

class Conv {
 public:
  Conv() = default;
  Conv(Context& c, const std::string& name, std::int64_t in, std::int64_t out, std::int64_t kernel,
       std::int64_t stride = 1)
      : stride_(stride), padding_(kernel / 2) {
    weight_ = c.parameter(name + ".weight", {out, in, kernel, kernel});
    bias_ = c.parameter(name + ".bias", {out});
  }
  Tensor forward(Context& c, const Tensor& x) const {
    return conv2d(c.rt, x, weight_, bias_, stride_, padding_);
  }

 private:
  std::int64_t stride_ = 1, padding_ = 0;
  Tensor weight_, bias_;
};

class GroupNorm {
 public:
  GroupNorm() = default;
  GroupNorm(Context& c, const std::string& name, std::int64_t channels) {
    weight_ = c.parameter(name + ".weight", {channels});
    bias_ = c.parameter(name + ".bias", {channels});
  }
  Tensor forward(Context& c, const Tensor& x) const { return group_norm(c.rt, x, weight_, bias_, 32); }

 private:
  Tensor weight_, bias_;
};

class ResBlock {
 public:
  ResBlock(Context& c, const std::string& name, std::int64_t in, std::int64_t out, std::int64_t time) {
    norm1_ = GroupNorm(c, name + ".norm1", in);
    conv1_ = Conv(c, name + ".conv1", in, out, 3);
    time_ = Linear(c, name + ".time", time, out, true);
    norm2_ = GroupNorm(c, name + ".norm2", out);
    conv2_ = Conv(c, name + ".conv2", out, out, 3);
    projects_ = in != out;
    if (projects_) shortcut_ = Conv(c, name + ".shortcut", in, out, 1);
  }

  Tensor forward(Context& c, const Tensor& x, const Tensor& time) const {
    Eager& rt = c.rt;
    Tensor y = norm1_.forward(c, x);
    y = silu(rt, y);
    y = conv1_.forward(c, y);
    {
      Tensor shift = silu(rt, time);
      shift = time_.forward(c, shift);
      const Tensor rows = unsqueeze(rt, shift, -1);
      const Tensor pixels = unsqueeze(rt, rows, -1);
      y = add(rt, y, pixels);
    }
    y = norm2_.forward(c, y);
    y = silu(rt, y);
    y = dropout(c, y);
    y = conv2_.forward(c, y);
    if (!projects_) return add(rt, x, y);
    const Tensor side = shortcut_.forward(c, x);
    return add(rt, side, y);
  }

 private:
  GroupNorm norm1_, norm2_;
  Conv conv1_, conv2_, shortcut_;
  Linear time_;
  bool projects_ = false;
};

class PixelAttention {
 public:
  PixelAttention() = default;
  PixelAttention(Context& c, const std::string& name, std::int64_t channels) : heads_(channels / 64) {
    if (heads_ == 0) heads_ = 1;
    norm_ = GroupNorm(c, name + ".norm", channels);
    qkv_ = Linear(c, name + ".qkv", channels, 3 * channels, true);
    proj_ = Linear(c, name + ".proj", channels, channels, true);
  }

  Tensor forward(Context& c, const Tensor& x) const {
    Eager& rt = c.rt;
    const std::int64_t batch = x.size(0), channels = x.size(1), pixels = x.size(2) * x.size(3);
    Tensor y = norm_.forward(c, x);
    y = view(rt, y, {batch, channels, pixels});
    y = transpose(rt, y, 1, 2);
    y = clone(rt, y);
    const Tensor flat = qkv_.forward(c, y);
    std::vector<Tensor> heads = split(rt, flat, channels, 2);
    for (Tensor& part : heads) {
      part = view(rt, part, {batch, pixels, heads_, channels / heads_});
      part = transpose(rt, part, 1, 2);
    }
    Tensor mixed;
    if (c.config.model.attention == AttentionKernel::fused) {
      mixed = flash_attention(rt, heads[0], heads[1], heads[2], false);
    } else {
      const Tensor keys = transpose(rt, heads[1], -2, -1);
      Tensor scores = matmul(rt, heads[0], keys);
      scores = mul_scalar(rt, scores);
      scores = softmax(rt, scores);
      const Tensor weights = to(rt, scores, heads[2].dtype());
      mixed = matmul(rt, weights, heads[2]);
    }
    mixed = transpose(rt, mixed, 1, 2);
    mixed = reshape(rt, mixed, {batch, pixels, channels});
    mixed = proj_.forward(c, mixed);
    mixed = transpose(rt, mixed, 1, 2);
    mixed = reshape(rt, mixed, x.shape());
    return add(rt, x, mixed);
  }

 private:
  GroupNorm norm_;
  Linear qkv_, proj_;
  std::int64_t heads_ = 1;
};

class UNet final : public Model {
 public:
  explicit UNet(Context& c) {
    const ModelConfig& m = c.config.model;
    const std::int64_t base = m.channels, time = 4 * base;
    const std::size_t levels = m.channel_factors.size();
    time1_ = Linear(c, "time.0", base, time, true);
    time2_ = Linear(c, "time.2", time, time, true);
    first_ = Conv(c, "conv_in", m.in_channels, base, 3);
    std::vector<std::int64_t> skips{base};
    std::int64_t width = base;
    for (std::size_t level = 0; level < levels; ++level) {
      const std::string name = "down." + std::to_string(level);
      for (std::int64_t i = 0; i < m.blocks_per_level; ++i) {
        const std::int64_t out = base * m.channel_factors[level];
        add_layer(c, down_, name + "." + std::to_string(i), width, out, time, level > 0);
        width = out;
        skips.push_back(width);
      }
      if (level + 1 < levels) {
        downsample_.emplace_back(c, name + ".downsample", width, width, 3, 2);
        skips.push_back(width);
      }
    }
    add_layer(c, middle_, "middle.0", width, width, time, true);
    add_layer(c, middle_, "middle.1", width, width, time, false);
    for (std::size_t level = levels; level-- > 0;) {
      const std::string name = "up." + std::to_string(level);
      for (std::int64_t i = 0; i <= m.blocks_per_level; ++i) {
        const std::int64_t out = base * m.channel_factors[level];
        add_layer(c, up_, name + "." + std::to_string(i), width + skips.back(), out, time, level > 0);
        skips.pop_back();
        width = out;
      }
      if (level > 0) upsample_.emplace_back(c, name + ".upsample", width, width, 3);
    }
    norm_ = GroupNorm(c, "norm_out", width);
    last_ = Conv(c, "conv_out", width, m.in_channels, 3);
  }

  Batch make_batch(Context& c, std::int64_t) override {
    Eager& rt = c.rt;
    const ModelConfig& m = c.config.model;
    const std::int64_t batch = c.config.training.batch;
    const auto normal = [&] {
      Tensor x = rt.make({batch, m.in_channels, m.image_size, m.image_size}, c.parameter_format());
      rt.emit(Aten::randn, {}, {&x}, {batch, m.in_channels, m.image_size, m.image_size, false});
      return x;
    };
    const Tensor images = normal();
    Tensor noise = normal();
    Tensor steps = rt.make({batch}, DType::int64);
    rt.emit(Aten::randint, {}, {&steps}, {1000, batch, false});
    const Tensor share = mul_scalar(rt, images), rest = mul_scalar(rt, noise);
    Tensor noisy = add(rt, share, rest);
    return {{noisy, noise, steps}};
  }

  Tensor loss(Context& c, Batch batch) override {
    Eager& rt = c.rt;
    const ModelConfig& m = c.config.model;
    Tensor time = time_embedding(c, batch.tensors[2]);
    time = time1_.forward(c, time);
    time = silu(rt, time);
    time = time2_.forward(c, time);
    Tensor x = first_.forward(c, batch.tensors[0]);
    std::vector<Tensor> skips{x};
    std::size_t next = 0;
    for (std::size_t level = 0; level < m.channel_factors.size(); ++level) {
      for (std::int64_t i = 0; i < m.blocks_per_level; ++i) {
        x = run_layer(c, down_[next++], x, time);
        skips.push_back(x);
      }
      if (level < downsample_.size()) {
        x = downsample_[level].forward(c, x);
        skips.push_back(x);
      }
    }
    for (const Layer& layer : middle_) x = run_layer(c, layer, x, time);
    next = 0;
    for (std::size_t level = m.channel_factors.size(), k = 0; level-- > 0;) {
      for (std::int64_t i = 0; i <= m.blocks_per_level; ++i) {
        const Tensor both[] = {to(rt, x, skips.back().dtype()), skips.back()};
        skips.pop_back();
        x = cat(rt, both, 1);
        x = run_layer(c, up_[next++], x, time);
      }
      if (level > 0) {
        x = upsample_nearest2d(rt, x, 2);
        x = upsample_[k++].forward(c, x);
      }
    }
    x = norm_.forward(c, x);
    x = silu(rt, x);
    x = last_.forward(c, x);
    return mse_loss(rt, x, batch.tensors[1]);
  }

 private:
  struct Layer {
    ResBlock block;
    PixelAttention attention;
    bool attends;
  };

  static void add_layer(Context& c, std::vector<Layer>& to_list, const std::string& name, std::int64_t in,
                        std::int64_t out, std::int64_t time, bool attends) {
    ResBlock block(c, name, in, out, time);
    to_list.push_back({std::move(block),
                       attends ? PixelAttention(c, name + ".attention", out) : PixelAttention(), attends});
  }

  static Tensor run_layer(Context& c, const Layer& layer, const Tensor& x, const Tensor& time) {
    const auto run = [&layer, &c](const std::vector<Tensor>& in) {
      const Tensor y = layer.block.forward(c, in[0], in[1]);
      return layer.attends ? layer.attention.forward(c, y) : y;
    };
    return c.recomputes(0) ? checkpoint(c.rt, run, {x, time}) : run({x, time});
  }

  // Sines and cosines of the diffusion step.
  static Tensor time_embedding(Context& c, const Tensor& steps) {
    Eager& rt = c.rt;
    const std::int64_t half = c.config.model.channels / 2;
    const Tensor places = rt.make({half}, DType::float32);
    rt.emit(Aten::arange, {}, {&places}, {half, false});
    const Tensor exponent = mul_scalar(rt, places);
    const Tensor rates = rt.make({half}, DType::float32);
    rt.emit(Aten::exp, {&exponent}, {&rates});
    const Tensor column = unsqueeze(rt, steps, 1);
    const Tensor angles = mul(rt, column, rates);
    const Tensor sine = rt.make(angles.shape(), DType::float32);
    rt.emit(Aten::sin, {&angles}, {&sine});
    const Tensor cosine = rt.make(angles.shape(), DType::float32);
    rt.emit(Aten::cos, {&angles}, {&cosine});
    const Tensor both[] = {sine, cosine};
    const Tensor table = cat(rt, both, -1);
    return to(rt, table, c.parameter_format());
  }

  Linear time1_, time2_;
  Conv first_, last_;
  GroupNorm norm_;
  std::vector<Layer> down_, middle_, up_;
  std::vector<Conv> downsample_, upsample_;
};

}  // namespace

std::unique_ptr<Model> make_unet(Context& c) {
  return std::make_unique<UNet>(c);
}

}  // namespace swaplab::synth
