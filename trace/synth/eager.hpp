// The eager runtime of a synthetic program: dispatches operators to a sink, holds what PyTorch keeps per
// thread (phase, gradient mode, autocast) and runs the backward pass.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "trace/synth/autograd.hpp"
#include "trace/synth/operators.hpp"
#include "trace/synth/signatures.hpp"
#include "trace/synth/sink.hpp"
#include "trace/synth/tensor.hpp"

namespace swaplab::synth {

class Eager {
 public:
  using Tensors = std::span<const Tensor* const>;
  using TensorList = std::initializer_list<const Tensor*>;

  Eager(OperatorSink& sink, std::string device) : sink_(sink), device_(std::move(device)) {}
  // Tensors must be gone before: their storages report to this object.
  ~Eager() = default;
  Eager(const Eager&) = delete;
  Eager& operator=(const Eager&) = delete;

  // A fresh contiguous tensor, result of the operator that is dispatched next.
  Tensor make(const Shape& shape, DType dtype) {
    return allocate(shape, dtype, device_, false, shape.numel() * item_size(dtype));
  }
  // A tensor that nobody computes: it lives from before its first use. `on_host`: in CPU memory;
  // `without_bytes`: its storage has none until it is resized.
  Tensor external(const Shape& shape, DType dtype, bool on_host = false, bool without_bytes = false);
  // Another view of the same storage.
  Tensor alias(const Tensor& base, const Shape& shape, const Shape& strides) {
    return {Ref<Storage>(&base.storage()), shape, strides, base.dtype()};
  }

  // Records one operator. Undefined tensors are left out.
  void emit(Aten op, TensorList in, TensorList out, std::initializer_list<Attr> attrs = {},
            TensorList written = {}) {
    emit_list(op, {in.begin(), in.size()}, {out.begin(), out.size()}, {attrs.begin(), attrs.size()},
              {written.begin(), written.size()}, SyncKind::none);
  }
  void emit_list(Aten op, Tensors in, Tensors out, std::span<const Attr> attrs, Tensors written,
                 SyncKind sync);

  void tag(const Tensor& tensor, StorageClass cls, std::string_view name) {
    sink_.tag(tensor.storage_id(), cls, name);
  }
  // FSDP's way to give memory back and take it again: the storage stays, its bytes go.
  void resize_storage(const Tensor& tensor, Bytes to);
  void mark(MarkKind kind, std::string_view text, std::int64_t number) { sink_.mark(kind, text, number); }
  // The storages that the graph below `root` holds, as a schema `saved` record.
  void record_saved(const Tensor& root, std::int64_t iteration, std::int64_t micro_batch);

  // Runs the backward pass from `root` with its gradient.
  void backward(const Tensor& root, Tensor gradient);

  // The copy in the autocast format, kept for parameters until autocast ends.
  Tensor autocast_copy(const Tensor& tensor);
  void begin_autocast(DType dtype) { autocast_ = dtype; }
  void end_autocast() {
    autocast_.reset();
    autocast_index_.clear();
    for (Tensor& copy : autocast_copies_) copy.reset();
    autocast_copies_.clear();
  }
  std::optional<DType> autocast() const { return autocast_; }

  bool grad_enabled() const { return grad_enabled_; }
  bool records(TensorList inputs) const {
    if (!grad_enabled_) return false;
    for (const Tensor* t : inputs)
      if (t->requires_grad()) return true;
    return false;
  }
  std::uint64_t next_sequence() { return sequence_++; }
  Phase phase() const { return phase_; }
  std::uint64_t op_count() const { return op_count_; }
  const std::string& device() const { return device_; }

  void storage_died(const Storage& storage) { sink_.free(storage.id); }
  void bury(Node* node);

  // Scopes.
  class PhaseScope {
   public:
    PhaseScope(Eager& rt, Phase phase) : rt_(rt), before_(rt.phase_) { rt.phase_ = phase; }
    ~PhaseScope() { rt_.phase_ = before_; }
    PhaseScope(const PhaseScope&) = delete;
    PhaseScope& operator=(const PhaseScope&) = delete;

   private:
    Eager& rt_;
    Phase before_;
  };
  class GradMode {
   public:
    GradMode(Eager& rt, bool enabled) : rt_(rt), before_(rt.grad_enabled_) { rt.grad_enabled_ = enabled; }
    ~GradMode() { rt_.grad_enabled_ = before_; }
    GradMode(const GradMode&) = delete;
    GradMode& operator=(const GradMode&) = delete;

   private:
    Eager& rt_;
    bool before_;
  };
  class StreamScope {
   public:
    StreamScope(Eager& rt, std::uint16_t stream) : rt_(rt), before_(rt.stream_) { rt.stream_ = stream; }
    ~StreamScope() { rt_.stream_ = before_; }
    StreamScope(const StreamScope&) = delete;
    StreamScope& operator=(const StreamScope&) = delete;

   private:
    Eager& rt_;
    std::uint16_t before_;
  };

 private:
  Tensor allocate(const Shape& shape, DType dtype, std::string_view device, bool external,
                  std::int64_t bytes);

  OperatorSink& sink_;
  std::string device_;
  SignatureTable signatures_;
  Phase phase_ = Phase::forward;
  std::optional<Phase> marked_phase_;
  bool grad_enabled_ = true;
  std::uint16_t stream_ = 0;
  std::optional<DType> autocast_;
  std::unordered_map<const TensorImpl*, std::size_t> autocast_index_;  // into autocast_copies_
  std::vector<Tensor> autocast_copies_;                                // freed in the order of their making
  std::uint64_t sequence_ = 0, op_count_ = 0, runs_ = 0;
  std::vector<Node*> graves_;
  bool burying_ = false;
  std::vector<StorageId> in_ids_, out_ids_, written_ids_;
  std::vector<const Tensor*> in_, out_;
};

}  // namespace swaplab::synth
