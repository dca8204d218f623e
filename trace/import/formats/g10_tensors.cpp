// G10's tensors.config alone: sizes without kernels.
#include "trace/import/g10_tables.hpp"
#include "trace/import/importer.hpp"
#include "trace/import/sum.hpp"

namespace swaplab {
namespace {

class G10TensorsImporter final : public Importer {
 public:
  ImporterInfo info() const override {
    return {"g10-tensors", "G10 tensors.config: sizes of tensors; give kernels.config too", ""};
  }
  bool recognises(std::string_view head) const override {
    g10::Tensor tensor{};
    std::string_view line = head.substr(0, head.find('\n'));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    return g10::parse_tensor(line, tensor);
  }
  ImportResult import(std::span<const ImportInput> inputs) const override {
    ImportResult result;
    ImportReport& r = result.report;
    std::int64_t weights = 0, weight_bytes = 0, bytes = 0;
    const auto tensors = g10::read_tensors(inputs[0]);
    for (const g10::Tensor& t : tensors) {
      weights += t.weight ? 1 : 0;
      add_checked(weight_bytes, t.weight ? t.bytes : 0);
      add_checked(bytes, t.bytes);
    }
    r.version = "tensors.config";
    r.add_found("tensors", static_cast<std::int64_t>(tensors.size()));
    r.add_found("weights", weights);
    r.add_found("tensor_bytes", bytes);
    r.add_found("weight_bytes", weight_bytes);
    r.missing = {"kernels and times: give kernels.config too"};
    r.study_reason = "sizes of tensors, but no kernels that use them";
    return result;
  }
};

}  // namespace
SWAPLAB_REGISTER_IMPORTER(G10TensorsImporter)
}  // namespace swaplab
