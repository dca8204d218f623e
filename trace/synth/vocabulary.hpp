// Token and image batches, embeddings and losses over a vocabulary, whole or divided over tensor-parallel
// ranks.
#pragma once

#include "trace/synth/model.hpp"

namespace swaplab::synth {

// Tokens [batch, length] and targets of the same shape.
Batch language_batch(Context& c, std::int64_t length, std::int64_t vocab);
// Images [batch, channels, size, size] of the parameters' format and class labels [batch].
Batch image_batch(Context& c, std::int64_t classes);
// weight holds this rank's rows; foreign tokens are masked out and the ranks' results summed.
Tensor vocabulary_embedding(Context& c, const Tensor& weight, const Tensor& tokens);
// Logits of hidden states [batch, length, hidden] and their mean cross-entropy, in `loss_chunks` pieces.
Tensor head_loss(Context& c, Tensor x, const Tensor& weight, const Tensor& targets);

}  // namespace swaplab::synth
