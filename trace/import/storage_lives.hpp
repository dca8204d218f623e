// Who makes, reads and writes which storage, from operators that name tensors by storage id.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace swaplab {

// One tensor among the inputs or outputs of an operator.
struct TensorUse {
  std::uint64_t tensor, storage;
  std::int64_t extent;     // bytes from the start of the storage to the end of the tensor
  std::uint32_t argument;  // position among the inputs or outputs
  bool on_device;
};

// Positions of the inputs that a schema marks as written: "(Tensor(a!) self, Scalar other)".
std::vector<std::uint32_t> written_arguments(std::string_view schema);

inline constexpr std::uint32_t kFromBefore = std::numeric_limits<std::uint32_t>::max();

// One life of a storage id: ids come again after their memory was reused.
struct StorageLife {
  std::int64_t bytes = 0;                       // the largest extent of a tensor in it
  std::uint32_t birth = kFromBefore, last = 0;  // operators
  bool result = false;                          // among the results of the operator that makes it
  bool scratch = false;                         // made and last used inside one operator, not its result
};

// Of one operator; numbers are rows of StorageLives::lives().
struct OperatorStorages {
  std::vector<std::uint32_t> in, out, wrote;
  std::vector<std::uint32_t> freed;  // after the operator: their last use
  std::int64_t scratch = 0;          // bytes
};

// Give the operators in program order; each may consist of several calls. Only tensors of one side (device
// or host) with a size count.
class StorageLives {
 public:
  explicit StorageLives(bool on_device) : on_device_(on_device) {}

  void begin_operator() { ops_.emplace_back(); }
  // Memory that a call makes without contents (aten::empty): new even under an id that was there before.
  void make(const std::vector<TensorUse>& outputs);
  // A call of the operator begun last; `outermost`: its outputs are the operator's results.
  void use(const std::vector<TensorUse>& inputs, const std::vector<TensorUse>& outputs,
           std::string_view schema, bool outermost);
  // After the last operator: ends every storage made here after its last use.
  void finish();

  const std::vector<StorageLife>& lives() const { return lives_; }
  const OperatorStorages& of(std::size_t op) const { return ops_[op]; }
  std::int64_t other_side_uses() const { return others_; }
  std::int64_t reused_ids() const { return reused_; }
  std::int64_t scratch_storages() const { return scratch_; }

 private:
  bool counts(const TensorUse& use);
  std::uint32_t add_life(const TensorUse& use, std::uint32_t birth);
  void touch(std::uint32_t life, const TensorUse& use);
  std::uint32_t now() const { return static_cast<std::uint32_t>(ops_.size() - 1); }

  bool on_device_;
  std::vector<OperatorStorages> ops_;
  std::vector<StorageLife> lives_;
  std::unordered_map<std::uint64_t, std::uint32_t> current_;  // storage id: row of lives_
  std::int64_t others_ = 0, reused_ = 0, scratch_ = 0;
};

}  // namespace swaplab
