// PyTorch profiler traces (Kineto Chrome JSON), 2021 to today, and the autograd profiler before them.
#include <algorithm>

#include "trace/import/importer.hpp"
#include "trace/import/kineto_trace.hpp"

namespace swaplab {
namespace {

class KinetoImporter final : public Importer {
 public:
  ImporterInfo info() const override {
    return {"kineto", "PyTorch profiler (Kineto) Chrome JSON: operators, kernels, [memory] events", ""};
  }
  bool recognises(std::string_view head) const override {
    if (head.substr(0, 3) == "\xef\xbb\xbf") head.remove_prefix(3);
    const auto first = head.find_first_not_of(" \t\r\n");
    if (first == std::string_view::npos) return false;
    if (head[first] == '{')
      return head.find("\"traceEvents\"") != std::string_view::npos ||
             head.find("\"schemaVersion\"") != std::string_view::npos;
    if (head[first] != '[') return false;
    const auto second = head.find_first_not_of(" \t\r\n", first + 1);
    if (second == std::string_view::npos || head[second] != '{') return false;
    return head.find("\"ph\":") != std::string_view::npos || head.find("\"ph\" :") != std::string_view::npos;
  }
  ImportResult import(std::span<const ImportInput> inputs) const override {
    return kineto::import_events(kineto::read_events(inputs[0]));
  }
};

}  // namespace
SWAPLAB_REGISTER_IMPORTER(KinetoImporter)
}  // namespace swaplab
