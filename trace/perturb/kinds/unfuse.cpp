// Operators run in their parts, as without the fused kernel: addmm as mm and add, dropout as mask and
// product, addcmul_ and addcdiv_ as product or quotient and sum. The value between the parts is stored.
#include <algorithm>

#include "trace/perturb/dataflow.hpp"
#include "trace/perturb/perturbation.hpp"
#include "trace/perturb/shapes.hpp"

namespace swaplab {
namespace {

struct UnfuseParams {
  std::int64_t rate = 1'000'000;  // ppm
};

// One part: arguments and results are positions in the whole operator's lists; kTemporary is the new value.
constexpr int kTemporary = -1;
struct Part {
  const char* name;
  std::vector<int> in;   // positions among the inputs
  std::vector<int> out;  // positions among the outputs
  bool in_place;         // writes its first input
};
struct Recipe {
  std::string_view whole;  // base name
  std::size_t inputs, outputs;
  std::size_t temporary_like;  // the new value has the size and shape of this output; kNoTemporary: none
  std::vector<Part> parts;
};
constexpr std::size_t kNoTemporary = 99;

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> list = {
      {"addmm",
       3,
       1,
       0,
       {{"aten.mm.default", {1, 2}, {kTemporary}, false}, {"aten.add.Tensor", {kTemporary, 0}, {0}, false}}},
      {"addcmul_",
       3,
       1,
       0,
       {{"aten.mul.Tensor", {1, 2}, {kTemporary}, false}, {"aten.add_.Tensor", {0, kTemporary}, {0}, true}}},
      {"addcdiv_",
       3,
       1,
       0,
       {{"aten.div.Tensor", {1, 2}, {kTemporary}, false}, {"aten.add_.Tensor", {0, kTemporary}, {0}, true}}},
      // The mask is a result of its own; the product reads it.
      {"native_dropout",
       1,
       2,
       kNoTemporary,
       {{"aten.bernoulli.p", {0}, {1}, false}, {"aten.mul.Tensor", {0, -3}, {0}, false}}},
  };
  return list;
}
// An argument below kTemporary is output -(argument) - 2 of the whole operator, which an earlier part made.
std::size_t earlier_output(int argument) {
  return static_cast<std::size_t>(-argument - 2);
}

class Unfuse final : public Perturbation {
 public:
  explicit Unfuse(UnfuseParams params) : params_(params) {}
  bool applies(const EditIteration& iteration) const override { return !iteration.inserted; }
  void apply(EditableTrace& edit, std::size_t index, Random& random) const override {
    const Items items = edit.iterations[index].items;
    Items result;
    result.reserve(items.size());
    for (Item item : items) {
      const Recipe* recipe = item.kind == ItemKind::op ? find(edit, item.arg) : nullptr;
      if (recipe != nullptr && random.chance(params_.rate)) {
        edit.open_change("unfuse", index);
        split(edit, item.arg, *recipe, result);
        edit.remove(item);
        edit.close_change();
      }
      result.push_back(item);
    }
    edit.iterations[index].items = std::move(result);
  }

 private:
  static const Recipe* find(const EditableTrace& edit, std::uint32_t row) {
    const EditOp& op = edit.op(row);
    for (const Recipe& recipe : recipes()) {
      if (recipe.whole == base_name(edit.op_name(row)) && recipe.inputs == op.in.size() &&
          recipe.outputs == op.out.size())
        return &recipe;
    }
    return nullptr;
  }

  static void split(EditableTrace& edit, std::uint32_t row, const Recipe& recipe, Items& into) {
    const EditOp whole = edit.op(row);
    const EditSignature signature = edit.signature(whole.signature);
    const SignatureShapes shapes = parse_shapes(signature.detail);
    const bool with_shapes =
        shapes.known && shapes.in.size() == whole.in.size() && shapes.out.size() == whole.out.size();
    StorageId temporary{kNever};
    if (recipe.temporary_like != kNoTemporary) {
      const StorageId like = whole.out[recipe.temporary_like];
      temporary = edit.add_storage(like, edit.bytes(like), false);
    }
    std::int64_t first_bytes = 0;
    for (std::size_t p = 0; p < recipe.parts.size(); ++p) {
      const Part& part = recipe.parts[p];
      EditOp op = whole;
      op.in.clear();
      op.out.clear();
      op.written.clear();
      EditSignature own;
      own.name = part.name;
      SignatureShapes own_shapes;
      std::int64_t read = 0, written = 0;
      for (const int argument : part.in) {
        const auto at = static_cast<std::size_t>(argument);
        const StorageId s = argument >= 0            ? whole.in[at]
                            : argument == kTemporary ? temporary
                                                     : whole.out[earlier_output(argument)];
        op.in.push_back(s);
        read += edit.bytes(s).value;
        if (with_shapes)
          own_shapes.in.push_back(argument >= 0            ? shapes.in[at]
                                  : argument == kTemporary ? shapes.out[recipe.temporary_like]
                                                           : shapes.out[earlier_output(argument)]);
      }
      for (const int argument : part.out) {
        const StorageId s =
            argument == kTemporary ? temporary : whole.out[static_cast<std::size_t>(argument)];
        op.out.push_back(s);
        written += edit.bytes(s).value;
        if (with_shapes)
          own_shapes.out.push_back(shapes.out[argument == kTemporary ? recipe.temporary_like
                                                                     : static_cast<std::size_t>(argument)]);
      }
      if (part.in_place) op.written = {op.in[0]};
      if (with_shapes) own.detail = replace_shapes(R"({"in":[],"out":[],"attr":[]})", own_shapes);
      own.read = Bytes{read};
      own.written = Bytes{written};
      // The first part does the work of the whole; the second one operation per element.
      const std::int64_t elements = with_shapes ? own_shapes.out[0].elements() : -1;
      own.flop = p == 0 && recipe.whole == "addmm" ? signature.flop : elements;
      if (whole.device_time.value >= 0) {
        if (p == 0) first_bytes = read + written;
        // Behind the first, by bytes: such a kernel is bound by memory.
        op.device_time = p == 0 || first_bytes == 0
                             ? whole.device_time
                             : Nanos{whole.device_time.value / first_bytes * (read + written) +
                                     whole.device_time.value % first_bytes * (read + written) / first_bytes};
      }
      op.signature = edit.add_signature(own);
      into.push_back({ItemKind::op, edit.add_op(std::move(op))});
    }
  }

  UnfuseParams params_;
};

SWAPLAB_REGISTER_PERTURBATION(Unfuse, UnfuseParams,
                              {"unfuse", "addmm, dropout, addcmul_ and addcdiv_ run in their parts"},
                              {share_field("rate", &UnfuseParams::rate, 0, 1'000'000,
                                           "share of these operators")});

}  // namespace
}  // namespace swaplab
