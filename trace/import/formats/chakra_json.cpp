// MLCommons Chakra execution traces in the JSON dialect {"workload_graph": [...]}.
#include "trace/import/chakra.hpp"

namespace swaplab {
namespace {

class ChakraJsonImporter final : public Importer {
 public:
  ImporterInfo info() const override {
    return {"chakra-json", "MLCommons Chakra execution trace, JSON dialect with a workload_graph", ""};
  }
  bool recognises(std::string_view head) const override {
    const auto first = head.find_first_not_of(" \t\r\n");
    return first != std::string_view::npos && head[first] == '{' &&
           head.find("\"workload_graph\"") != std::string_view::npos;
  }
  ImportResult import(std::span<const ImportInput> inputs) const override {
    return chakra::import_graph(chakra::read_json(inputs[0]));
  }
};

}  // namespace
SWAPLAB_REGISTER_IMPORTER(ChakraJsonImporter)
}  // namespace swaplab
