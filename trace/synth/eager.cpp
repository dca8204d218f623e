#include "trace/synth/eager.hpp"

#include <algorithm>

#include "trace/synth/ops.hpp"

namespace swaplab::synth {

Tensor Eager::allocate(const Shape& shape, DType dtype, std::string_view device, bool external,
                       std::int64_t bytes) {
  const StorageId id = sink_.alloc(Bytes{bytes}, device, external);
  return {Ref<Storage>(new Storage(*this, id, Bytes{bytes})), shape, contiguous_strides(shape), dtype};
}

Tensor Eager::external(const Shape& shape, DType dtype, bool on_host, bool without_bytes) {
  return allocate(shape, dtype, on_host ? "cpu" : std::string_view(device_), true,
                  without_bytes ? 0 : shape.numel() * item_size(dtype));
}

void Eager::emit_list(Aten op, Tensors in, Tensors out, std::span<const Attr> attrs, Tensors written,
                      SyncKind sync) {
  if (marked_phase_ != phase_) {
    marked_phase_ = phase_;
    const char letter = phase_letter(phase_);
    sink_.mark(MarkKind::phase, {&letter, 1}, -1);
  }
  in_.clear();
  out_.clear();
  in_ids_.clear();
  out_ids_.clear();
  written_ids_.clear();
  for (const Tensor* t : in) {
    if (!t->defined()) continue;
    in_.push_back(t);
    in_ids_.push_back(t->storage_id());
  }
  for (const Tensor* t : out) {
    if (!t->defined()) continue;
    out_.push_back(t);
    out_ids_.push_back(t->storage_id());
  }
  for (const Tensor* t : written) written_ids_.push_back(t->storage_id());
  TraceBuilder::Op row;
  row.signature = signatures_.find(sink_, op, in_, out_, written, attrs);
  row.phase = phase_;
  row.stream = stream_;
  row.sync = sync;
  row.in = in_ids_;
  row.out = out_ids_;
  row.written = written_ids_;
  sink_.op(row);
  ++op_count_;
}

void Eager::resize_storage(const Tensor& tensor, Bytes to) {
  Storage& storage = tensor.storage();
  if (storage.bytes == to) return;
  sink_.resize(storage.id, storage.bytes, to);
  storage.bytes = to;
}

Tensor Eager::autocast_copy(const Tensor& tensor) {
  if (!autocast_ || !is_floating(tensor.dtype()) || tensor.dtype() == *autocast_) return tensor;
  const bool keep = tensor.requires_grad() && !tensor.impl()->grad_fn && tensor.dtype() == DType::float32;
  if (keep) {
    if (const auto found = autocast_index_.find(tensor.impl()); found != autocast_index_.end())
      return autocast_copies_[found->second];
  }
  Tensor copy = to(*this, tensor, *autocast_);
  if (keep) {
    autocast_index_.emplace(tensor.impl(), autocast_copies_.size());
    autocast_copies_.push_back(copy);
  }
  return copy;
}

void Eager::bury(Node* node) {
  // Long chains of nodes die one after the other instead of one inside the other.
  graves_.push_back(node);
  if (burying_) return;
  burying_ = true;
  while (!graves_.empty()) {
    Node* dead = graves_.back();
    graves_.pop_back();
    delete dead;
  }
  burying_ = false;
}

void Eager::record_saved(const Tensor& root, std::int64_t iteration, std::int64_t micro_batch) {
  if (!root.impl()->grad_fn) return;
  std::vector<StorageId> held;
  std::vector<Node*> todo{root.impl()->grad_fn.get()};
  const std::uint64_t visit = ++runs_;
  todo[0]->visit = visit;
  while (!todo.empty()) {
    Node* node = todo.back();
    todo.pop_back();
    for (const Tensor& t : node->saved)
      if (t.defined()) held.push_back(t.storage_id());
    for (const Edge& edge : node->next) {
      if (!edge.node || edge.node->visit == visit) continue;
      edge.node->visit = visit;
      todo.push_back(edge.node.get());
    }
  }
  std::sort(held.begin(), held.end());
  held.erase(std::unique(held.begin(), held.end()), held.end());
  sink_.saved(held, iteration, micro_batch);
}

void Eager::backward(const Tensor& root, Tensor gradient) {
  if (!root.impl()->grad_fn) return;
  GradMode no_grad(*this, false);
  run_backward(*this, ++runs_, {Ref<Node>(root.impl()->grad_fn), root.impl()->output_nr},
               std::move(gradient));
}

}  // namespace swaplab::synth
