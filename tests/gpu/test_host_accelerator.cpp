// Lanes on threads: order, waits, real copies, checks, teardown.
#include <doctest/doctest.h>

#include <cstring>
#include <thread>

#include "gpu_validate/accelerator.hpp"
#include "gpu_validate/host_verify.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

constexpr std::uint16_t kOut = 1, kIn = 2;  // with one compute stream

AcceleratorOptions small() {
  AcceleratorOptions options;
  options.reservation = Bytes{1 << 20};
  return options;
}

Operand operand(std::uintptr_t address, std::uint64_t bytes, ContentKey expected, ContentKey written) {
  return {address, bytes, expected, written, 7};
}

TEST_CASE("kernels write, copies move real bytes both ways, and checks pass") {
  const auto a = open_host_accelerator(small());
  const std::uintptr_t x = a->reservation(), y = x + 4096;
  std::byte* const host = a->pin(Bytes{4096});
  const ContentKey key = content_key(7, 1);
  const Operand write = operand(x, 4096, 0, key);
  const Ticket k = a->launch(0, {Nanos{1'000'000}, KernelKind::spin, {1, 0}, {&write, 1}});
  a->wait(kOut, 0, k);
  const Ticket out = a->copy(kOut, {Direction::device_to_host, host, x, 4096, Nanos{0}, 0, {1, 0}, 7});
  a->wait(kIn, kOut, out);
  const Ticket in = a->copy(kIn, {Direction::host_to_device, host, y, 4096, Nanos{0}, key, {1, 0}, 7});
  a->wait(0, kIn, in);
  const Operand read = operand(y, 4096, key, 0);
  const Ticket last = a->launch(0, {Nanos{0}, KernelKind::spin, {1, 0}, {&read, 1}});
  CHECK(last == 2);
  a->synchronize(0, last);
  CHECK(a->query(kIn, in));
  CHECK(a->findings().empty());
  const VerifyCounts counts = a->verified();
  CHECK(counts.operands == 1);
  CHECK(counts.swap_ins == 1);
  CHECK(counts.words == 3 * 512);  // the copy, and the kernel's two looks
  CHECK(a->time(0, k).end - a->time(0, k).begin >= Nanos{1'000'000});
  CHECK(a->time(kOut, out).begin >= a->time(0, k).end);
  CHECK(a->time(kIn, in).begin >= a->time(kOut, out).end);
  CHECK(a->time(0, last).begin >= a->time(kIn, in).end);
}

TEST_CASE("lanes without a wait between them run at the same time") {
  const auto a = open_host_accelerator(small());
  const Ticket k = a->launch(0, {Nanos{30'000'000}, KernelKind::spin, {1, 0}, {}});
  std::byte* const host = a->pin(Bytes{64});
  const Ticket c =
      a->copy(kOut, {Direction::device_to_host, host, a->reservation(), 64, Nanos{30'000'000}, 0, {1, 0}, 0});
  a->synchronize(0, k);
  a->synchronize(kOut, c);
  CHECK(a->time(kOut, c).begin < a->time(0, k).end);
  CHECK(a->time(0, k).begin < a->time(kOut, c).end);
}

TEST_CASE("a wrong byte is reported with its storage, place and what was there") {
  const auto a = open_host_accelerator(small());
  std::byte* const host = a->pin(Bytes{800});
  write_content(host, 800, content_key(7, 1));
  host[401] ^= std::byte{4};
  const Ticket in = a->copy(
      kIn, {Direction::host_to_device, host, a->reservation(), 800, Nanos{0}, content_key(7, 1), {1, 0}, 7});
  a->synchronize(kIn, in);
  const auto findings = a->findings();
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].lane == kIn);
  CHECK(findings[0].ticket == in);
  CHECK(findings[0].slot == 7);
  CHECK(findings[0].word == 50);
  CHECK((findings[0].expected ^ findings[0].found) == std::uint64_t{4} << 8);
  CHECK(a->verified().wrong_words == 1);
}

TEST_CASE("a full queue blocks the host until work completes") {
  AcceleratorOptions options = small();
  options.queue_depth = 4;
  const auto a = open_host_accelerator(options);
  for (int i = 0; i < 20; ++i) {
    const Ticket ticket = a->launch(0, {Nanos{100'000}, KernelKind::spin, {1, 0}, {}});
    if (ticket > 4) CHECK(a->query(0, ticket - 4));
  }
}

TEST_CASE("an accelerator with work left, and with lanes that wait for ever, ends at once") {
  const auto begin = std::chrono::steady_clock::now();
  {
    const auto a = open_host_accelerator(small());
    for (int i = 0; i < 100; ++i) a->launch(0, {Nanos{20'000'000}, KernelKind::spin, {1, 0}, {}});
    a->wait(kIn, kOut, 1000);  // never comes
    std::byte* const host = a->pin(Bytes{64});
    a->copy(kIn, {Direction::host_to_device, host, a->reservation(), 64, Nanos{0}, 0, {1, 0}, 0});
  }
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(1));
}

TEST_CASE("memory modes have names, and the host has one of them") {
  CHECK(parse_memory_mode("vmm") == MemoryMode::vmm);
  CHECK_THROWS_WITH_AS(
      parse_memory_mode("vmn"),
      "unknown memory mode 'vmn' (did you mean 'vmm'?); expected reservation, malloc-async or vmm", Error);
  AcceleratorOptions options = small();
  options.memory = MemoryMode::vmm;
  CHECK_THROWS_AS(open_host_accelerator(options), Error);
}

}  // namespace
}  // namespace swaplab
