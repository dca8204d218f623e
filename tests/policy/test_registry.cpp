#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "policy/registry.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

std::string error_of(const std::string& text) {
  try {
    parse_policies(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST_CASE("a part with '=' and no ':' continues the policy before it") {
  const auto specs =
      parse_policies("lru:min_bytes=1MiB,offload-activations:preset=megatron,fallback=lru,size");
  REQUIRE(specs.size() == 3);
  CHECK(specs[0].text() == "lru:min_bytes=1MiB");
  CHECK(specs[1].values.size() == 2);
  CHECK(specs[2].text() == "size");
}

TEST_CASE("wrong policies and parameters name the nearest right one") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"lur", "unknown policy 'lur' (did you mean 'lru'?)"},
      {"lru:min_byte=1MiB", "policy 'lru' has no parameter 'min_byte' (did you mean 'min_bytes'?)"},
      {"lru:min_bytes=7", "expected bytes with a unit"},
      {"lru:min_bytes=1MiB,min_bytes=2MiB", "given twice"},
      {"offload-activations:preset=vdnn", "expected one of custom|torchtune|megatron"},
      {"offload-activations:ahead=-1", "expected an integer in 0..1000000"},
      {"lru,,size", "empty policy name"},
      {"lru:", "expected name=value"},
  };
  for (const auto& [text, expected] : cases) {
    CAPTURE(text);
    const std::string message = error_of(text);
    CAPTURE(message);
    CHECK(message.find(expected) != std::string::npos);
  }
}

TEST_CASE("bytes are read exactly") {
  Bytes bytes;
  CHECK(parse_bytes("0.4GiB", bytes).empty());
  CHECK(bytes.value == 429496729);
  CHECK(parse_bytes("9007199254740993B", bytes).empty());
  CHECK(bytes.value == 9007199254740993);
  for (const char* wrong : {"", "1", "GiB", "1.2.3MiB", "-1MiB", "1 MiB", "99999999999999GiB"}) {
    CAPTURE(wrong);
    CHECK(!parse_bytes(wrong, bytes).empty());
  }
}

}  // namespace
}  // namespace swaplab
