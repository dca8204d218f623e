// The content function and its check.
#include <doctest/doctest.h>

#include <set>
#include <vector>

#include "gpu_validate/host_verify.hpp"

namespace swaplab {
namespace {

TEST_CASE("contents of different storages, versions and places differ") {
  std::set<std::uint64_t> words;
  for (std::uint32_t slot = 0; slot < 50; ++slot) {
    for (std::uint32_t version = 0; version < 10; ++version) {
      CHECK(content_key(slot, version) != 0);
      for (std::uint64_t i = 0; i < 10; ++i) {
        const std::uint64_t word = content_word(content_key(slot, version), i);
        words.insert(word);
        CHECK(key_of_word(word, i) == content_key(slot, version));
      }
    }
  }
  CHECK(words.size() == 50 * 10 * 10);
}

TEST_CASE("any single wrong byte is found when all words are read, and only then") {
  for (const std::uint64_t bytes : {1u, 7u, 8u, 9u, 64u, 1001u}) {
    std::vector<std::byte> data(bytes + 8, std::byte{0x5a});
    const ContentKey key = content_key(3, 4);
    write_content(data.data(), bytes, key);
    CHECK(data[bytes] == std::byte{0x5a});  // nothing beyond the end
    const WordCheck good = check_content(data.data(), bytes, key, {1, 0});
    CHECK(good.wrong == 0);
    CHECK(good.words == (bytes + 7) / 8);
    for (std::uint64_t at = 0; at < bytes; ++at) {
      data[at] ^= std::byte{1};
      const WordCheck bad = check_content(data.data(), bytes, key, {1, 0});
      CHECK(bad.wrong == 1);
      CHECK(bad.first_wrong == at / 8);
      CHECK(check_content(data.data(), bytes, key, {0, 0}).words == 0);
      data[at] ^= std::byte{1};
    }
    CHECK(check_content(data.data(), bytes, content_key(3, 5), {1, 0}).wrong == (bytes + 7) / 8);
  }
}

TEST_CASE("a sample reads first, last and every n-th word; all phases together read every word") {
  std::vector<std::byte> data(800);
  write_content(data.data(), data.size(), content_key(1, 1));
  for (std::size_t word = 0; word < 100; ++word) {
    data[word * 8 + 3] ^= std::byte{0x80};
    std::uint64_t hits = 0;
    for (std::uint32_t phase = 0; phase < 16; ++phase)
      hits += check_content(data.data(), data.size(), content_key(1, 1), {16, phase}).wrong;
    CHECK(hits == (word == 0 || word == 99 ? 16u : 1u));
    data[word * 8 + 3] ^= std::byte{0x80};
  }
}

}  // namespace
}  // namespace swaplab
