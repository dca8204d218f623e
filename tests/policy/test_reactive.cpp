// What none, lru, size and next-use decide: on a made view, by hand; on random programs, by property.
#include <doctest/doctest.h>

#include <map>
#include <numeric>
#include <set>

#include "tests/policy/policy_programs.hpp"
#include "trace/error.hpp"

using namespace swaplab;
using namespace swaplab::test;

namespace {

// A device whose content is written down; evictions are recorded and take effect.
class FakeDevice final : public View, public Actions {
 public:
  struct Item {
    std::int64_t bytes;
    std::uint32_t next;
    bool pinned = false;
    bool resident = true;
  };
  explicit FakeDevice(std::vector<Item> oldest_first) : items_(std::move(oldest_first)) {}
  std::vector<std::uint32_t> evicted;

  std::uint32_t position() const override { return 0; }
  Nanos host_now() const override { return {}; }
  Bytes budget() const override { return {}; }
  Bytes allocated() const override { return {}; }
  Bytes outgoing() const override { return {}; }
  Bytes size(Slot s) const override { return {items_.at(index(s)).bytes}; }
  StorageClass storage_class(Slot) const override { return StorageClass::unknown; }
  Residency residency(Slot s) const override {
    return items_.at(index(s)).resident ? Residency::device : Residency::host;
  }
  bool host_copy_valid(Slot) const override { return false; }
  bool evictable(Slot s) const override { return items_.at(index(s)).resident && !items_[index(s)].pinned; }
  std::uint32_t last_use(Slot s) const override { return index(s); }
  Slot oldest() const override { return from(0); }
  Slot newer(Slot s) const override { return from(index(s) + 1); }
  const Program& program() const override { throw Error(ErrorKind::policy, "no program"); }
  const AccessIndex& accesses() const override { throw Error(ErrorKind::policy, "no program"); }
  std::uint32_t next_use(Slot s) const override { return items_.at(index(s)).next; }
  Nanos device_time(std::uint32_t) const override { throw Error(ErrorKind::policy, "no times"); }
  const Machine& machine() const override { throw Error(ErrorKind::policy, "no machine"); }

  void evict(Slot s) override {
    if (!evictable(s)) throw Error(ErrorKind::policy, "not evictable");
    items_[index(s)].resident = false;
    evicted.push_back(index(s));
  }
  void copy_out(Slot) override {}
  bool prefetch(Slot) override { return true; }
  void spend_host_time(Nanos) override {}

 private:
  Slot from(std::uint32_t i) const {
    while (i < items_.size() && !items_[i].resident) ++i;
    return i < items_.size() ? Slot{i} : kNoSlot;
  }
  std::vector<Item> items_;
};

std::vector<std::uint32_t> victims(const std::string& text, std::int64_t shortfall,
                                   std::vector<FakeDevice::Item> items) {
  const auto specs = parse_policies(text);
  const auto policy = specs.at(0).factory->make(specs[0].values);
  FakeDevice device(std::move(items));
  policy->make_room(Bytes{shortfall}, device, device);
  return device.evicted;
}

using List = std::vector<std::uint32_t>;

// Oldest first: sizes, next uses; 2 is pinned, 3 is empty.
const std::vector<FakeDevice::Item> kItems = {{100, 50}, {300, 20}, {900, 90, true}, {0, kNever},
                                              {200, 80}, {300, 10}, {50, kNever}};

TEST_CASE("none evicts nothing") {
  CHECK(victims("none", 1, kItems).empty());
}

TEST_CASE("lru takes the oldest until the shortfall is covered, never pinned or empty storages") {
  CHECK(victims("lru", 1, kItems) == List{0});
  CHECK(victims("lru", 100, kItems) == List{0});
  CHECK(victims("lru", 101, kItems) == List{0, 1});
  CHECK(victims("lru", 601, kItems) == List{0, 1, 4, 5});
  CHECK(victims("lru", 1'000'000, kItems) == List{0, 1, 4, 5, 6});
  CHECK(victims("lru:min_bytes=150B", 301, kItems) == List{1, 4});
}

TEST_CASE("size takes the largest, of equals the lower number") {
  CHECK(victims("size", 1, kItems) == List{1});
  CHECK(victims("size", 301, kItems) == List{1, 5});
  CHECK(victims("size", 1'000'000, kItems) == List{1, 5, 4, 0, 6});
}

TEST_CASE("next-use takes what is used farthest in the future, never-used first") {
  CHECK(victims("next-use", 1, kItems) == List{6});
  CHECK(victims("next-use", 51, kItems) == List{6, 4});
  CHECK(victims("next-use", 1'000'000, kItems) == List{6, 4, 0, 1, 5});
}

TEST_CASE("with a single candidate all reactive policies agree") {
  const std::vector<FakeDevice::Item> one = {{10, 5, true}, {20, 7}, {30, 9, true}};
  for (const char* name : {"lru", "size", "next-use"}) CHECK(victims(name, 5, one) == List{1});
}

// Misses of a textbook page cache of `frames` equal pages; `farthest` picks Belady's victim, else LRU's.
std::uint32_t page_misses(const std::vector<std::uint32_t>& uses, std::size_t frames, bool farthest) {
  std::map<std::uint32_t, std::size_t> held;  // page -> last use
  std::uint32_t misses = 0;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (!held.contains(uses[i])) {
      ++misses;
      if (held.size() == frames) {
        std::uint32_t victim = held.begin()->first;
        std::size_t best = 0;
        for (const auto& [page, last] : held) {
          const auto next = std::find(uses.begin() + static_cast<std::ptrdiff_t>(i), uses.end(), page);
          const std::size_t score =
              farthest ? static_cast<std::size_t>(next - uses.begin()) : uses.size() - last;
          if (score > best) {
            best = score;
            victim = page;
          }
        }
        held.erase(victim);
      }
    }
    held[uses[i]] = i;
  }
  return misses;
}

TEST_CASE("pages of one size: lru and next-use miss exactly as a textbook cache does") {
  std::mt19937 random(7);
  const Machine machine = plain_machine(1'000'000'000);
  for (int round = 0; round < 50; ++round) {
    // Pages start on the host: the budget is full of a first set that the uses never touch again.
    const std::uint32_t pages = 4 + static_cast<std::uint32_t>(random() % 5);
    const std::size_t frames = 2 + random() % 3;
    ProgramWriter w;
    std::vector<Slot> slots;
    for (std::uint32_t p = 0; p < pages; ++p) slots.push_back(w.initial(1000));
    // Touch all once, so that the cache content is that of the policy.
    std::vector<std::uint32_t> uses(pages);
    std::iota(uses.begin(), uses.end(), 0u);
    for (int i = 0; i < 40; ++i) uses.push_back(static_cast<std::uint32_t>(random() % pages));
    for (const std::uint32_t use : uses) w.op(Phase::forward, {slots[use]}, {});
    const Program program = w.finish();
    const Bytes budget{1000 * static_cast<std::int64_t>(frames)};
    for (const char* name : {"lru", "next-use"}) {
      CAPTURE(round);
      CAPTURE(name);
      const RunResult result = run_policy(name, program, machine, budget);
      REQUIRE(result.outcome == Outcome::ok);
      // The first `frames` pages are resident from the start: their first use is no miss.
      const std::uint32_t expected =
          page_misses(uses, frames, std::string(name) == "next-use") - static_cast<std::uint32_t>(frames);
      std::uint32_t fetched = 0;
      for (const auto& iteration : result.iterations) fetched += iteration.passive_in;
      // An evicted page whose bytes were not handed on yet is simply kept; with equal pages that cannot be.
      CHECK(fetched == expected);
    }
  }
}

TEST_CASE("a program that fits is not touched; one that does not ends none") {
  const Machine machine = plain_machine(1'000'000'000);
  const Program program = chain(6, 1, 1000);
  for (const char* name : {"none", "lru", "size", "next-use"}) {
    const RunResult result = run_policy(name, program, machine, program.peak_bytes);
    CHECK(result.outcome == Outcome::ok);
    CHECK(result.evictions == 0);
  }
  const RunResult short_by_one = run_policy("none", program, machine, program.peak_bytes - Bytes{1});
  CHECK(short_by_one.outcome == Outcome::out_of_memory);
  CHECK(short_by_one.explanation.find("operator 5") != std::string::npos);
}

TEST_CASE("reactive policies run every random program from the largest working set up") {
  const Machine machine = plain_machine(500'000'000);
  int evicting = 0;
  for (std::uint32_t seed = 0; seed < 120; ++seed) {
    const Program program = random_program(seed, 60);
    const std::int64_t low = program.largest_working_set.value, high = program.peak_bytes.value;
    for (const char* name : {"lru", "size", "next-use", "offload-activations:fallback=lru,min_bytes=512B"}) {
      for (const std::int64_t budget : {low, (low + high) / 2, high}) {
        CAPTURE(seed);
        CAPTURE(name);
        CAPTURE(budget);
        Schedule schedule;
        const RunResult result =
            run_policy(name, program, machine, Bytes{budget}, AllocatorKind::ideal, &schedule);
        CAPTURE(result.explanation);
        REQUIRE(result.outcome == Outcome::ok);
        CHECK(result.allocator.peak_allocated <= Bytes{budget});
        evicting += result.evictions > 0 ? 1 : 0;
        for (const ScheduleEntry& entry : schedule.entries) {
          if (entry.kind == ScheduleKind::copy_out) CHECK(entry.bytes > Bytes{0});
        }
      }
    }
    CHECK(run_policy("lru", program, machine, Bytes{low - 1}).outcome == Outcome::infeasible);
  }
  CHECK(evicting > 200);
}

}  // namespace
