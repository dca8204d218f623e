// JSON object texts that a trace carries: header extras and signature details (private to trace/).
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace swaplab {

// Both texts are spliced into schema v1 records, so they must be one object whose top-level keys do not
// collide with the record's own. Canonical: no spaces, numbers and escapes in this library's spelling, so
// that writing and reading again gives the same text.
class JsonTexts {
 public:
  JsonTexts();
  ~JsonTexts();
  JsonTexts(JsonTexts&&) noexcept;
  JsonTexts& operator=(JsonTexts&&) noexcept;

  // The canonical form of TraceHeader::extra_json: any keys but k, v, torch, src, dev, model. Throws
  // Error(input) that says what was expected; "" stands for "{}".
  std::string canonical_extra(std::string_view json);
  // The canonical form of a signature's detail: keys in, out, attr only.
  std::string canonical_detail(std::string_view json);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// `text` with its quotes and escapes. Expects UTF-8 (see is_utf8).
std::string json_quoted(std::string_view text);

bool is_utf8(std::string_view text);

}  // namespace swaplab
