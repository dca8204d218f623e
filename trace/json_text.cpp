#include "trace/json_text.hpp"

#include <simdjson.h>

#include <algorithm>

#include "trace/error.hpp"

namespace swaplab {
namespace {

constexpr std::string_view kHeaderOwn[] = {"k", "v", "torch", "src", "dev", "model"};
constexpr std::string_view kDetailKeys[] = {"in", "out", "attr"};

template <class Keys>
bool among(const Keys& keys, std::string_view key) {
  return std::find(std::begin(keys), std::end(keys), key) != std::end(keys);
}

std::string excerpt(std::string_view text) {
  return text.size() <= 120 ? std::string(text) : std::string(text.substr(0, 120)) + "...";
}

}  // namespace

struct JsonTexts::Impl {
  simdjson::dom::parser parser;

  template <class Allowed>
  std::string canonical(std::string_view json, const char* expected, const Allowed& allowed) {
    simdjson::dom::object object;
    // The text usually lies inside a larger one; parse() copies it to have its padding.
    if (parser.parse(json.data(), json.size()).get(object) != simdjson::SUCCESS)
      throw Error(ErrorKind::input, std::string(expected) + ", found " + excerpt(json));
    for (const auto field : object) {
      if (!allowed(field.key))
        throw Error(ErrorKind::input,
                    std::string(expected) + ", found the key '" + std::string(field.key) + "'");
    }
    return simdjson::minify(object);
  }
};

JsonTexts::JsonTexts() : impl_(std::make_unique<Impl>()) {}
JsonTexts::~JsonTexts() = default;
JsonTexts::JsonTexts(JsonTexts&&) noexcept = default;
JsonTexts& JsonTexts::operator=(JsonTexts&&) noexcept = default;

std::string JsonTexts::canonical_extra(std::string_view json) {
  if (json.empty() || json == "{}") return "{}";
  return impl_->canonical(json,
                          "header extras must be one JSON object without the header's own fields "
                          "(k, v, torch, src, dev, model)",
                          [](std::string_view key) { return !among(kHeaderOwn, key); });
}

std::string JsonTexts::canonical_detail(std::string_view json) {
  if (json == "{}") return "{}";
  return impl_->canonical(json,
                          "a signature's detail must be {\"in\":...,\"out\":...,\"attr\":...}, each optional",
                          [](std::string_view key) { return among(kDetailKeys, key); });
}

std::string json_quoted(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.append(1, '\\').append(1, c);
    } else if (byte < 0x20) {
      out.append("\\u00").append(1, kHex[byte >> 4]).append(1, kHex[byte & 15]);
    } else {
      out += c;
    }
  }
  return out += '"';
}

bool is_utf8(std::string_view text) {
  return simdjson::validate_utf8(text.data(), text.size());
}

}  // namespace swaplab
