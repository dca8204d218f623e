// Builds a Trace in program order and refuses what cannot be a real run.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "trace/model.hpp"

namespace swaplab {

constexpr std::uint16_t kMaxStreams = 64;  // streams are numbered 0 to kMaxStreams - 1

// Every method throws Error(input) naming storage or operator when the step is impossible:
// duplicate or unknown storage id, use or free of a dead storage, negative size, access rows that
// are not subsets (`written` of `in`), id space exhausted, iteration marks that do not nest, a stream out
// of range, text that is not UTF-8, JSON texts (header extras, signature detail) that are not one object
// with the keys they may have. JSON texts are stored in canonical spelling (no spaces).
// Storage ids are dense and given by the builder; readers map file ids to them.
class TraceBuilder {
 public:
  TraceBuilder();
  // A builder whose columns grow in unnamed temporary files in `folder`, for traces larger than memory:
  // what stays resident is the distinct names and some MiB per column. finish() gives a trace that refers
  // to the files; finish_swt() writes it. Throws Error(output) when the folder or its disk cannot take it.
  static TraceBuilder spooled(const std::string& folder);
  ~TraceBuilder();
  TraceBuilder(TraceBuilder&&) noexcept;
  TraceBuilder& operator=(TraceBuilder&&) noexcept;

  void set_header(TraceHeader header);
  // How messages call a storage; without it they use the dense id. Readers give the file's own ids.
  void name_storages(std::function<std::string(StorageId)> name);
  NameId intern(std::string_view text);

  struct Signature {
    std::string_view name;
    std::string_view detail = "{}";
    std::int64_t flop = -1;
    Bytes read{-1}, written{-1}, scratch{-1};
    bool view = false;
  };
  SigId add_signature(const Signature& signature);

  StorageId alloc(Bytes bytes, std::string_view device, bool external);
  void tag(StorageId storage, StorageClass cls, std::string_view name);  // any time, last one wins
  void resize(StorageId storage, Bytes from, Bytes to);
  void free(StorageId storage);
  void mark(MarkKind kind, std::string_view text, std::int64_t number, Nanos time);
  void saved(std::span<const StorageId> storages, std::int64_t iteration, std::int64_t micro_batch);
  void memory_event(std::uint64_t address, Bytes bytes, bool in_op);

  struct Op {
    SigId signature{};
    Phase phase = Phase::unknown;
    std::uint16_t stream = 0;
    SyncKind sync = SyncKind::none;
    Nanos device_time{-1}, host_time{-1}, host_gap{-1};
    std::span<const StorageId> in, out, written;
  };
  OpId op(const Op& op);

  std::uint64_t op_count() const;
  std::uint64_t storage_count() const;
  Bytes peak_bytes() const;
  Bytes live_bytes() const;

  // Closes the last gap. The builder is empty afterwards. Throws when there is no operator.
  Trace finish();
  // finish(), written to `path` as .swt. Of a spooled builder, memory stays bounded.
  void finish_swt(const std::string& path);

 private:
  struct Impl;
  explicit TraceBuilder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace swaplab
