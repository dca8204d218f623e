// Turns operators of a trace into the columns of a Program (private to sim/: use program.hpp for a whole
// trace, program_windows.hpp for one that need not fit in memory).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "sim/program.hpp"

namespace swaplab {

// Slot of each live storage. Pages without a live storage cost a pointer, so that a long trace, whose
// storages come and go, takes little more than those that live.
class LiveSlots {
 public:
  explicit LiveSlots(std::size_t storages) : pages_((storages + kPage - 1) / kPage) {}
  std::uint32_t get(StorageId storage) const {  // kNever: none
    const Page* page = pages_[index(storage) / kPage].get();
    return page == nullptr ? kNever : page->slot[index(storage) % kPage];
  }
  void set(StorageId storage, std::uint32_t slot) {
    std::unique_ptr<Page>& page = pages_[index(storage) / kPage];
    if (!page) page = std::make_unique<Page>();
    std::uint32_t& entry = page->slot[index(storage) % kPage];
    if (entry == kNever) ++page->live;
    entry = slot;
  }
  void clear(StorageId storage) {
    std::unique_ptr<Page>& page = pages_[index(storage) / kPage];
    page->slot[index(storage) % kPage] = kNever;
    if (--page->live == 0) page.reset();
  }

 private:
  static constexpr std::size_t kPage = 4096;
  struct Page {
    Page() { slot.fill(kNever); }
    std::array<std::uint32_t, kPage> slot;
    std::uint32_t live = 0;
  };
  std::vector<std::unique_ptr<Page>> pages_;
};

class ProgramCompiler {
 public:
  // Lays out iterations and initial storages; no operator yet. The references must outlive the compiler.
  // `passed`: empty, or called after each stretch of columns looked at; then next_window() may be used.
  ProgramCompiler(const Trace& trace, const Machine& machine, TimeSource times,
                  const std::function<void()>& passed = {});

  // Adds the operators up to `end`, which follow those added before.
  void append(std::uint32_t end);
  // After the last operator: what stands behind it. Throws Error(input) when times are missing.
  void close();
  // Drops all operators but the latest, and makes slots available again whose storages died before the
  // window that ends here began. Returns those: their next user is another storage.
  std::span<const Slot> next_window();

  Program& program() { return program_; }

 private:
  void add_iterations();
  void add_initial_slots(const std::function<void()>& passed);
  std::uint32_t add_slot(StorageId storage, Bytes bytes, std::uint32_t gap, bool initial);
  bool is_initial(std::uint32_t storage) const;
  void allocate(StorageId storage, Bytes bytes, std::uint32_t gap);
  void release(StorageId storage, std::uint32_t gap);
  void add_gap(std::uint32_t gap);
  void add_access(StorageId storage, std::uint8_t flags, std::uint32_t op);
  void add_operator(std::uint32_t op);
  void add_time(Nanos time, std::uint32_t op);
  bool recorded_work(std::uint32_t op) const;
  Nanos device_time(std::uint32_t op);
  Nanos host_time(std::uint32_t op, bool view) const;

  const Trace& trace_;
  const Machine& machine_;
  std::vector<bool> on_device_;  // per storage
  LiveSlots current_slot_;
  std::vector<std::uint32_t> last_access_;       // per slot
  std::vector<Nanos> model_time_;                // per signature, -1 not computed yet
  std::vector<Slot> free_, died_, died_before_;  // usable; died in this window, in the one before
  const bool windowed_;
  std::uint32_t births_ = 0;
  Bytes live_{0};
  Nanos total_time_{0};
  std::uint64_t missing_times_ = 0;
  std::uint32_t first_missing_ = 0;
  Program program_;
};

}  // namespace swaplab
