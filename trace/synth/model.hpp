// The interface between architectures and the training loop.
#pragma once

#include <memory>
#include <vector>

#include "trace/synth/module.hpp"

namespace swaplab::synth {

struct Batch {
  std::vector<Tensor> tensors;  // input first, target second
};

class Model {
 public:
  virtual ~Model() = default;
  // Makes one micro-batch (phase D) of the given sequence length.
  virtual Batch make_batch(Context& c, std::int64_t length) = 0;
  // Forward pass up to the loss.
  virtual Tensor loss(Context& c, Batch batch) = 0;

  // Pipeline stages: the share of one stage. `received` is undefined on the first; the result is the loss on
  // the last stage, else what the next one gets. Architectures without stages leave these.
  virtual bool has_stages() const { return false; }
  virtual Tensor stage(Context& c, const Batch& batch, const Tensor& received);
  virtual Shape boundary(const Context& c, std::int64_t length) const;  // what passes between stages

  // Called before and after each block's forward pass: parameter sharding gathers and gives back here.
  std::function<Tensor(std::size_t block, const Tensor&x)> before_block, after_block;
  // Parameters [first, last) of each block, in registration order; the rest belongs to no block.
  struct Range {
    std::size_t first, last;
  };
  std::vector<Range> blocks;
};

std::unique_ptr<Model> make_decoder(Context& c);
std::unique_ptr<Model> make_encoder(Context& c);  // BERT's masked language model
std::unique_ptr<Model> make_vit(Context& c);
std::unique_ptr<Model> make_resnet(Context& c);
std::unique_ptr<Model> make_unet(Context& c);
std::unique_ptr<Model> make_model(Context& c);

}  // namespace swaplab::synth
