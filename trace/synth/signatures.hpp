// Operator signatures of a synthetic program, found again by their integers without building any text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trace/synth/operators.hpp"
#include "trace/synth/sink.hpp"

namespace swaplab::synth {

class SignatureTable {
 public:
  using Tensors = std::span<const Tensor* const>;
  // The signature of this call; defined in the sink at its first use.
  SigId find(OperatorSink& sink, Aten op, Tensors in, Tensors out, Tensors written,
             std::span<const Attr> attrs);
  std::size_t size() const { return count_; }

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t first = 0, length = 0;  // range of `keys_`; length 0: empty
    SigId id{};
  };
  void grow();
  std::vector<Slot> slots_ = std::vector<Slot>(1024);
  std::vector<std::int64_t> keys_, key_;
  std::size_t count_ = 0;
};

// {"in":[[[4,128],"float32"],...],"out":[...],"attr":[256,true]}, the form of schema v1.
std::string signature_detail(std::span<const Tensor* const> in, std::span<const Tensor* const> out,
                             std::span<const Attr> attrs);

}  // namespace swaplab::synth
