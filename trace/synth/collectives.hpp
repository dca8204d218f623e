// Collectives as operators, and their differentiable forms for tensor and sequence parallelism.
//
// Attributes of every collective: bytes of the larger side, ranks of the group, group kind. A machine with
// several GPUs can meet them across ranks; on one GPU they cost what the cost model says of their bytes.
#pragma once

#include <cstdint>

#include "trace/synth/ops.hpp"

namespace swaplab::synth {

enum class Group : std::uint8_t { tensor = 0, data = 1, pipeline = 2, expert = 3 };

// Stream of the communication library; the compute stream is 0.
constexpr std::uint16_t kCommunicationStream = 1;

void all_reduce_(Eager& rt, const Tensor& x, std::int64_t ranks, Group group);
// Concatenates the ranks' parts along `dim`, or keeps one part of the sum.
Tensor all_gather(Eager& rt, const Tensor& part, std::int64_t ranks, std::int64_t dim, Group group);
Tensor reduce_scatter(Eager& rt, const Tensor& whole, std::int64_t ranks, std::int64_t dim, Group group);
void all_gather_into(Eager& rt, const Tensor& whole, const Tensor& part, std::int64_t ranks, Group group);
void reduce_scatter_into(Eager& rt, const Tensor& part, const Tensor& whole, std::int64_t ranks, Group group);
Tensor all_to_all(Eager& rt, const Tensor& x, std::int64_t rows, std::int64_t ranks, Group group);
void send(Eager& rt, const Tensor& x, std::int64_t ranks);
Tensor receive(Eager& rt, const Shape& shape, DType dtype, std::int64_t ranks);

// Differentiable: identity forward, all-reduce backward; and the other way round.
Tensor copy_to_ranks(Eager& rt, const Tensor& x, std::int64_t ranks);
Tensor sum_over_ranks(Eager& rt, const Tensor& x, std::int64_t ranks);
// Differentiable, along the sequence (dimension 1): gather forward, reduce-scatter backward; and the reverse.
Tensor gather_sequence(Eager& rt, const Tensor& x, std::int64_t ranks);
Tensor scatter_sum_sequence(Eager& rt, const Tensor& x, std::int64_t ranks);
// A column-parallel linear layer on a sequence shard: keeps the shard and gathers it again in the backward
// pass.
Tensor gathered_linear(Eager& rt, const Tensor& shard, const Tensor& weight, const Tensor& bias,
                       std::int64_t ranks);

}  // namespace swaplab::synth
