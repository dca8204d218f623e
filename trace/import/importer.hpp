// The only header that the author of an importer includes. An importer is one file in formats/: a class
// and one SWAPLAB_REGISTER_IMPORTER line.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/import/input.hpp"
#include "trace/import/report.hpp"
#include "trace/model.hpp"

namespace swaplab {

struct ImporterInfo {
  std::string_view name;        // unique, what --from takes
  std::string_view summary;     // one line
  std::string_view companions;  // formats it can be linked with, space separated
};

struct ImportResult {
  ImportReport report;
  std::optional<Trace> trace;  // empty when the file holds no operator and no storage
};

class Importer {
 public:
  virtual ~Importer() = default;
  virtual ImporterInfo info() const = 0;
  // Whether these first bytes (of at most 64 KiB) look like this format. Never by file name.
  virtual bool recognises(std::string_view head) const = 0;
  // The first input is of this format, the others are of its companions. Throws Error(input) with the
  // file, the byte or line and what was expected.
  virtual ImportResult import(std::span<const ImportInput> inputs) const = 0;
};

void register_importer(const Importer* importer);

template <class T>
struct ImporterRegistration {
  ImporterRegistration() {
    static const T importer;
    register_importer(&importer);
  }
};
#define SWAPLAB_REGISTER_IMPORTER(Class)                              \
  namespace {                                                         \
  const swaplab::ImporterRegistration<Class> registration_of_##Class; \
  }

}  // namespace swaplab
