// Where a synthetic program writes its operators: a trace in memory, or a file that grows.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "trace/builder.hpp"

namespace swaplab::synth {

// The calls of TraceBuilder that a program needs, in program order.
class OperatorSink {
 public:
  virtual ~OperatorSink() = default;
  virtual SigId add_signature(const TraceBuilder::Signature& signature) = 0;
  virtual StorageId alloc(Bytes bytes, std::string_view device, bool external) = 0;
  virtual void tag(StorageId storage, StorageClass cls, std::string_view name) = 0;
  virtual void resize(StorageId storage, Bytes from, Bytes to) = 0;
  virtual void free(StorageId storage) = 0;
  virtual void mark(MarkKind kind, std::string_view text, std::int64_t number) = 0;
  virtual void saved(std::span<const StorageId> storages, std::int64_t iteration,
                     std::int64_t micro_batch) = 0;
  virtual void op(const TraceBuilder::Op& op) = 0;
};

class BuilderSink final : public OperatorSink {
 public:
  explicit BuilderSink(TraceBuilder& builder) : builder_(builder) {}
  SigId add_signature(const TraceBuilder::Signature& s) override { return builder_.add_signature(s); }
  StorageId alloc(Bytes bytes, std::string_view device, bool external) override {
    return builder_.alloc(bytes, device, external);
  }
  void tag(StorageId storage, StorageClass cls, std::string_view name) override {
    builder_.tag(storage, cls, name);
  }
  void resize(StorageId storage, Bytes from, Bytes to) override { builder_.resize(storage, from, to); }
  void free(StorageId storage) override { builder_.free(storage); }
  void mark(MarkKind kind, std::string_view text, std::int64_t number) override {
    builder_.mark(kind, text, number, Nanos{-1});
  }
  void saved(std::span<const StorageId> storages, std::int64_t iteration, std::int64_t micro_batch) override {
    builder_.saved(storages, iteration, micro_batch);
  }
  void op(const TraceBuilder::Op& op) override { builder_.op(op); }

 private:
  TraceBuilder& builder_;
};

}  // namespace swaplab::synth
