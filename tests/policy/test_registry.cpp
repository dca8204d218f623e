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
      {"", "empty policy name"},
      {"lru:=3", "expected name=value"},
      {"ahead=3,lru", "'ahead=3' stands before any policy"},
      {"lru,size,lru:min_bytes=0KiB", "policy 'lru:min_bytes=0B' is listed twice"},
      {"size:x=1", "policy 'size' has no parameter 'x'; parameters: none"},
      {"offload-activations:fraction=1.5", "expected a fraction in 0..1"},
      {"offload-activations:presets=megatron", "did you mean 'preset'?"},
  };
  for (const auto& wrong : cases) {
    const auto& [text, expected] = wrong;
    CAPTURE(wrong.first);
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

TEST_CASE("an unknown parameter lists the ones there are, with ranges and defaults") {
  CHECK(error_of("lru:min=1B").find("; parameters: min_bytes (>= 0B) = 0B") != std::string::npos);
  CHECK(error_of("nothing").find("; policies: ") != std::string::npos);
}

TEST_CASE("fractions are exact to a millionth") {
  const std::vector<std::pair<std::string, Ppm>> cases = {
      {"0", 0},           {"1", 1'000'000}, {"0.25", 250'000}, {"25%", 250'000},
      {"12.5%", 125'000}, {"0.000001", 1},  {"0.0000010", 1},  {"100%", 1'000'000}};
  for (const auto& fraction : cases) {
    const auto& [text, expected] = fraction;
    CAPTURE(fraction.first);
    Ppm value = -1;
    CHECK(parse_fraction(text, 0, 1'000'000, value).empty());
    CHECK(value == expected);
    Ppm again = -1;
    CHECK(parse_fraction(format_fraction(value), 0, 1'000'000, again).empty());
    CHECK(again == value);
  }
  for (const char* wrong : {"", "%", ".5", "5.", "1.1", "0.0000001", "-0.1", "0.5.5", "half", "101%"}) {
    CAPTURE(wrong);
    Ppm value = -1;
    CHECK(!parse_fraction(wrong, 0, 1'000'000, value).empty());
    CHECK(value == -1);
  }
}

TEST_CASE("every policy has a name, a summary and defaults that parse to themselves") {
  const auto list = policy_list();
  REQUIRE(list.size() >= 6);
  for (const PolicyFactory* factory : list) {
    const std::string name(factory->info().name);
    CAPTURE(name);
    CHECK(!factory->info().summary.empty());
    const PolicySpec defaults{factory, {}};
    for (const auto& row : factory->describe()) CHECK(!row.description.empty());
    const auto again = parse_policies(defaults.text());
    REQUIRE(again.size() == 1);
    CHECK(again[0].text() == defaults.text());
    CHECK(factory->make({}) != nullptr);
  }
}

}  // namespace
}  // namespace swaplab
