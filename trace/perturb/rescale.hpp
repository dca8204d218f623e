// Another batch size, sequence length or expert load: dimensions are followed from the input data through the
// operators, and shapes, sizes, FLOP, bytes and times change with them.
//
// Rules:
// - The input of a micro-batch is what its data phase leaves tagged "data" (else its first integer result):
// of
//   integers and rank 2 it is batch x sequence, of floats and rank 4 batch x channel x height x width.
// - Parameters, their gradients and optimizer state never change. A dimension changes only if it was derived
//   from a dimension of the input: by the operator's own rule (products, transpositions, views, reductions,
//   convolutions, embeddings), else by equal shape, place or value among its arguments.
// - Operators without arguments (masks, positions) are recognised by value.
// - A routed token count (a host-read shape such as nonzero's) changes on its own or with the batch, rounded
//   down and at least 1.
// - FLOP follow the product that the operator computes, bytes follow the shapes, device time follows FLOP
// where
//   there are any, else bytes. Host times stay.
// - Where equal numbers contradict each other (a sequence as long as a head is wide), nothing is guessed:
//   Error(usage) names the operator.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "trace/perturb/dataflow.hpp"

namespace swaplab {

struct Rescale {
  std::int64_t batch = 0, sequence = 0;  // new values; 0: as recorded
  // New result length of the host-read shape operator at this node; overrides the general rule.
  std::unordered_map<std::uint32_t, std::int64_t> routed;
};

// Changes the iteration and logs into the open change. Throws Error(usage) when the input's dimensions are
// not recognisable or contradict each other.
void rescale_iteration(EditableTrace& edit, std::size_t iteration, const Rescale& request);
// The same as one whole change of `kind`.
void change_dimensions(EditableTrace& edit, std::size_t iteration, std::string kind, const Rescale& request);

// Nodes whose result's first dimension depends on data that the host reads (schema: sync "shape").
bool is_routing(const EditableTrace& edit, const Dataflow& flow, std::uint32_t node);

}  // namespace swaplab
