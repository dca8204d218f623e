// The profilers, as code with a cost that bench_chameleon measures. Lightweight: TokenTable and a vector.
// Detailed: operands, allocator state and swaps, the whole-iteration time only. Conventional: every
// operator timed, with its name and shapes kept, as the profilers of training frameworks do.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "policy/chameleon/profile.hpp"
#include "policy/chameleon/remembered.hpp"
#include "sim/policy_api.hpp"

namespace swaplab::chameleon {

// Where in a training step an operator runs, from module, grad_fn and optimizer hooks. A forward
// operator after a backward one starts the next micro-batch.
class StepTracker {
 public:
  void begin_iteration() { *this = StepTracker(); }
  void advance(Phase phase) {
    const StageType before = type_;
    const std::int32_t before_batch = micro_batch_;
    switch (phase) {
      case Phase::forward:
        if (backward_seen_) ++batch_;
        backward_seen_ = false;
        type_ = StageType::forward;
        break;
      case Phase::backward:
      case Phase::recompute:
        backward_seen_ = true;
        type_ = StageType::backward;
        break;
      case Phase::optimizer:
        type_ = StageType::optimizer;
        break;
      case Phase::unknown:
      case Phase::init:
      case Phase::zero_grad:
      case Phase::data:
      case Phase::evaluation:
        break;
    }
    micro_batch_ = type_ == StageType::forward || type_ == StageType::backward ? batch_ : 0;
    offset_ = started_ && before == type_ && before_batch == micro_batch_ ? offset_ + 1 : 0;
    started_ = true;
  }
  StageType type() const { return type_; }
  std::int32_t micro_batch() const { return micro_batch_; }
  std::int64_t offset() const { return offset_; }  // from the start of the run of this type and micro-batch

 private:
  StageType type_ = StageType::init;
  std::int32_t batch_ = 1, micro_batch_ = 0;
  std::int64_t offset_ = 0;
  bool backward_seen_ = false, started_ = false;
};

// The storage behind a row of a profile that DetailedProfiler made.
constexpr Remembered storage_of(const ProfiledTensor& row) {
  return {Slot{static_cast<std::uint32_t>(row.id & 0xffffffff)}, static_cast<std::uint32_t>(row.id >> 32)};
}

class DetailedProfiler {
 public:
  void begin_iteration();
  void op(StageType type, std::int32_t micro_batch, std::uint32_t token, Bytes active) {
    profile_.type.push_back(type);
    profile_.micro_batch.push_back(micro_batch);
    profile_.name.push_back(token - 1);
    profile_.active.push_back(active);
    profile_.tensor_begin.push_back(static_cast<std::uint32_t>(profile_.tensors.size()));
  }
  // An operand of the newest operator. `birth_rank`: View::birth_rank.
  void tensor(Slot slot, std::uint32_t birth_rank, Bytes bytes, StorageClass cls) {
    profile_.tensors.push_back(row(slot, birth_rank, bytes, cls));
    ++profile_.tensor_begin.back();
  }
  // Copies are recorded where the bytes move in the allocator's count, so that active plus hidden bytes are
  // the live bytes at every operator. A storage that was evicted counts as active until its bytes are handed
  // on: call `leaving` at the eviction and `observe` before the active bytes of an operator are read.
  void leaving(Slot slot, bool out_of_memory, const View& view) {
    leaving_.push_back({remember(slot, view), out_of_memory});
  }
  void observe(const View& view);
  // Bytes come back before operator `op` of the iteration. Ignored for what left in an earlier iteration,
  // or the curve would fall below the live bytes.
  void returning(std::uint32_t op, Slot slot, Bytes bytes);

  std::uint32_t op_count() const { return profile_.op_count(); }
  // Closes the iteration. A storage's id is its birth rank, which orders them, in the upper 32 bits and its
  // slot in the lower (storage_of). `names`: text per token - 1.
  IterationProfile finish(Nanos duration, bool step_out_of_memory, std::vector<std::string> names);

 private:
  std::uint32_t row(Slot slot, std::uint32_t birth_rank, Bytes bytes, StorageClass cls);
  struct Leaving {
    Remembered storage;
    bool out_of_memory;
  };
  void record(std::uint32_t op, bool out, Slot slot, Bytes bytes, bool out_of_memory);
  IterationProfile profile_;
  std::vector<Leaving> leaving_;
  std::vector<std::uint32_t> row_of_;  // by slot; valid when row_epoch_ is the present one
  std::vector<std::uint32_t> row_epoch_;
  std::vector<std::uint32_t> out_epoch_;  // by slot: iteration in which it left and did not return
  std::uint32_t epoch_ = 0;
};

// The baseline: what a general profiler keeps of every operator.
template <class Clock>
class ConventionalProfiler {
 public:
  struct Record {
    std::string name;
    typename Clock::time_point begin, end;
    std::vector<std::int64_t> operand_bytes;
  };
  void begin(std::string_view name, const std::vector<Bytes>& operands) {
    Record& record = records_.emplace_back();
    record.name = name;
    record.operand_bytes.reserve(operands.size());
    for (const Bytes bytes : operands) record.operand_bytes.push_back(bytes.value);
    record.begin = Clock::now();
  }
  void end() { records_.back().end = Clock::now(); }
  const std::vector<Record>& records() const { return records_; }
  void clear() { records_.clear(); }

 private:
  std::vector<Record> records_;
};

}  // namespace swaplab::chameleon
