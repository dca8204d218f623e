// MLCommons Chakra execution traces: length-delimited protobuf (.et).
#include "trace/import/chakra.hpp"

namespace swaplab {
namespace {

class ChakraImporter final : public Importer {
 public:
  ImporterInfo info() const override {
    return {"chakra", "MLCommons Chakra execution trace, protobuf (.et): nodes, dependencies, times", ""};
  }
  bool recognises(std::string_view head) const override { return chakra::looks_like_protobuf(head); }
  ImportResult import(std::span<const ImportInput> inputs) const override {
    return chakra::import_graph(chakra::read_protobuf(inputs[0]));
  }
};

}  // namespace
SWAPLAB_REGISTER_IMPORTER(ChakraImporter)
}  // namespace swaplab
