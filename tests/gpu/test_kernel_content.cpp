// The kernels' reading, checking and writing, run thread by thread on the host: together the threads of a
// launch do exactly what the host's own code does.
#include <doctest/doctest.h>

#include <set>
#include <vector>

#include "gpu_validate/cuda/kernel_content.hpp"
#include "gpu_validate/host_verify.hpp"

namespace swaplab {
namespace {

struct Noted {
  std::multiset<std::uint64_t> words;
  void operator()(const cuda::DeviceOperand&, std::uint64_t i, std::uint64_t expected, std::uint64_t found) {
    CHECK(expected != found);
    words.insert(i);
  }
};

cuda::DeviceOperand operand(std::vector<std::byte>& data, std::uint64_t bytes, ContentKey expected,
                            ContentKey written) {
  return {reinterpret_cast<std::uint64_t>(data.data()), bytes, expected, written, 0};
}

TEST_CASE("threads together write a content, and nothing beyond it") {
  for (const std::uint64_t bytes : {1u, 8u, 13u, 800u, 4099u}) {
    for (const std::uint64_t threads : {1u, 3u, 256u, 1024u}) {
      std::vector<std::byte> data(bytes + 16, std::byte{0x5a}), wanted = data;
      write_content(wanted.data(), bytes, content_key(1, 2));
      Noted noted;
      for (std::uint64_t t = 0; t < threads; ++t)
        cuda::write_operand(operand(data, bytes, 0, content_key(1, 2)), {1, 0}, t, threads, noted);
      CHECK(data == wanted);
      CHECK(noted.words.empty());
    }
  }
}

TEST_CASE("threads together look at the words of the sample, each once, as the host does") {
  for (const std::uint64_t bytes : {1u, 8u, 13u, 24u, 800u, 4099u}) {
    for (const std::uint32_t stride : {0u, 1u, 2u, 7u, 64u, 5000u}) {
      for (const std::uint32_t phase : {0u, 1u, 6u, 63u, 1000u}) {
        for (const std::uint64_t threads : {1u, 5u, 256u}) {
          const Sampling sampling{stride, phase};
          std::vector<std::byte> data(bytes);  // zeroes: every word is wrong
          const WordCheck host = check_content(data.data(), bytes, content_key(1, 1), sampling);
          CHECK(host.words == cuda::sampled_words(bytes, sampling));
          Noted read, in_place;
          for (std::uint64_t t = 0; t < threads; ++t)
            cuda::check_operand(operand(data, bytes, content_key(1, 1), 0), sampling, t, threads, read);
          for (std::uint64_t t = 0; t < threads; ++t)
            cuda::write_operand(operand(data, bytes, content_key(1, 1), content_key(1, 2)), sampling, t,
                                threads, in_place);
          CHECK(read.words.size() == host.wrong);
          CHECK(in_place.words == read.words);
          CHECK(std::set<std::uint64_t>(read.words.begin(), read.words.end()).size() == read.words.size());
          CHECK(check_content(data.data(), bytes, content_key(1, 2), {1, 0}).wrong == 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace swaplab
