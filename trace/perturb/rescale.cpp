#include "trace/perturb/rescale.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "trace/error.hpp"
#include "trace/perturb/dims.hpp"

namespace swaplab {
namespace {

__extension__ using Wide = __int128;

// value * after / before, rounded down; -1 and 0 stay.
std::int64_t scaled(std::int64_t value, std::int64_t before, std::int64_t after) {
  if (value <= 0 || before <= 0 || before == after) return value;
  return static_cast<std::int64_t>(Wide{value} * after / before);
}

std::int64_t bytes_of(const std::vector<TensorShape>& tensors) {
  std::int64_t sum = 0;
  for (const TensorShape& t : tensors) sum += t.elements() * element_bytes(t.dtype);
  return sum;
}

// What the recorded bytes read are made of: all arguments, or, for a gather, the rows of its result instead
// of the whole table.
std::pair<std::int64_t, std::int64_t> bytes_read(std::string_view name, std::int64_t recorded,
                                                 const SignatureShapes& before,
                                                 const SignatureShapes& after) {
  const std::int64_t all = bytes_of(before.in);
  const auto gathered = [](const SignatureShapes& s) {
    return bytes_of(s.in) - bytes_of({s.in[0]}) + bytes_of(s.out);
  };
  // The table may happen to have as many rows as are read, so gathers are asked first.
  const bool gathers = name == "embedding" || name.starts_with("index") || name == "gather";
  if (gathers && !before.in.empty() && recorded == gathered(before)) return {recorded, gathered(after)};
  return {all, bytes_of(after.in)};
}

class Rescaler {
 public:
  Rescaler(EditableTrace& edit, std::size_t iteration, const Rescale& request)
      : edit_(edit), iteration_(iteration), request_(request), flow_(edit, iteration) {}

  void run() {
    for (std::uint32_t node = 0; node < flow_.nodes.size(); ++node) {
      const bool data = op(node).phase == Phase::data;
      if (data && !in_data_) enter_micro_batch(node);
      in_data_ = data;
      visit(node);
    }
    if (!found_input_) {
      throw Error(ErrorKind::usage, where() + " has no operator of phase D that makes its input");
    }
  }

 private:
  const EditOp& op(std::uint32_t node) const { return edit_.op(flow_.nodes[node].op); }
  std::string where() const { return "iteration " + std::to_string(edit_.iterations[iteration_].number); }
  [[noreturn]] void contradiction(std::uint32_t node, const char* what) const {
    throw Error(ErrorKind::usage,
                where() + ", operator " + std::to_string(node) + " (" +
                    std::string(edit_.op_name(flow_.nodes[node].op)) + "): " + what + "; batch " +
                    std::to_string(scale_.batch) + " and sequence " + std::to_string(scale_.sequence) +
                    " cannot be told from other dimensions here. Choose an iteration of another "
                    "length");
  }

  // Recognises the input that the data phase starting here makes.
  void enter_micro_batch(std::uint32_t first) {
    std::uint32_t chosen = kNever;
    bool tagged = false;
    for (std::uint32_t node = first; node < flow_.nodes.size() && op(node).phase == Phase::data; ++node) {
      for (const StorageId s : flow_.made(edit_, node)) {
        const bool is_input =
            edit_.storage_class(s) == StorageClass::data && edit_.storage_name(s).starts_with("input");
        if (tagged || (!is_input && chosen != kNever)) continue;
        chosen = node;
        tagged = is_input;
      }
    }
    if (chosen == kNever) return;
    const SignatureShapes shapes = parse_shapes(edit_.signature(op(chosen).signature).detail);
    if (!shapes.known || shapes.out.empty()) return;
    const TensorShape& input = shapes.out[0];
    if (input.dims.empty()) return;
    found_input_ = true;
    scale_ = {};
    scale_.batch = scale_.new_batch = input.dims[0];
    if (input.dims.size() == 2 && input.dtype.starts_with("int"))
      scale_.sequence = scale_.new_sequence = input.dims[1];
    if (request_.batch > 0) scale_.new_batch = request_.batch;
    if (request_.sequence > 0) {
      if (scale_.sequence == 0) {
        throw Error(ErrorKind::usage, where() + " has no sequence: its input is " + input.dtype +
                                          " of rank " + std::to_string(input.dims.size()));
      }
      scale_.new_sequence = request_.sequence;
    }
    if (scale_.batch == scale_.sequence && (request_.batch > 0) != (request_.sequence > 0)) {
      throw Error(ErrorKind::usage, where() + ": batch and sequence are both " +
                                        std::to_string(scale_.batch) + ", so that neither can change alone");
    }
    scale_.routes = std::move(routes_);
  }

  void visit(std::uint32_t node) {
    const EditOp& o = op(node);
    const EditSignature signature = edit_.signature(o.signature);
    SignatureShapes shapes = parse_shapes(signature.detail);
    if (!shapes.known || shapes.in.size() != o.in.size() || shapes.out.size() != o.out.size()) return;
    std::vector<Labels> in;
    for (std::size_t i = 0; i < o.in.size(); ++i) in.push_back(labels_of(o.in[i], shapes.in[i]));
    std::vector<Labels> out;
    if (is_routing(edit_, flow_, node)) {
      out = routed(node, shapes);
    } else if (in_data_) {
      out = data_labels(shapes, scale_);
    } else {
      out = derive_labels(base_name(signature.name), signature.view, shapes, in, scale_);
    }
    if (out.size() != shapes.out.size()) contradiction(node, "the dimensions of its arguments do not agree");
    for (std::size_t i = 0; i < o.out.size(); ++i) {
      if (!edit_.is_model_state(o.out[i])) known_[index(o.out[i])].add(shapes.out[i].dims, out[i]);
    }
    SignatureShapes after = shapes;
    bool changes = false;
    const auto rescale = [&](std::vector<TensorShape>& tensors, const std::vector<Labels>& labels) {
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        for (std::size_t d = 0; d < tensors[i].dims.size(); ++d) {
          std::int64_t& dim = tensors[i].dims[d];
          const std::int64_t scaled_dim = scale_.apply(dim, labels[i][d]);
          if (scaled_dim < 0) contradiction(node, "a dimension is no multiple of what it derives from");
          changes |= scaled_dim != dim;
          dim = scaled_dim;
        }
      }
    };
    rescale(after.in, in);
    rescale(after.out, out);
    if (changes) change(node, signature, shapes, after);
  }

  Labels labels_of(StorageId s, const TensorShape& shape) {
    const Labels constant(shape.dims.size());
    if (edit_.is_model_state(s)) return constant;
    const auto found = known_.find(index(s));
    return found == known_.end() ? constant : found->second.find(shape.dims, scale_);
  }

  // A count of tokens: its own dimension, whatever its value.
  std::vector<Labels> routed(std::uint32_t node, const SignatureShapes& shapes) {
    const std::int64_t count = shapes.out[0].dims[0];
    const auto given = request_.routed.find(node);
    std::int64_t after =
        scaled(scaled(count, scale_.batch, scale_.new_batch), scale_.sequence, scale_.new_sequence);
    if (count > 0) after = std::max<std::int64_t>(after, 1);
    if (given != request_.routed.end()) after = given->second;
    scale_.routes.push_back({count, after});
    routes_ = scale_.routes;
    Label route;
    route.route = static_cast<std::uint16_t>(scale_.routes.size());
    std::vector<Labels> out;
    for (const TensorShape& t : shapes.out) {
      Labels labels(t.dims.size());
      if (!t.dims.empty() && t.dims[0] == count) labels[0] = route;
      out.push_back(std::move(labels));
    }
    return out;
  }

  void change(std::uint32_t node, EditSignature signature, const SignatureShapes& before,
              SignatureShapes after) {
    rescale_attributes(base_name(signature.name), before, after);
    const auto [read, read_after] =
        bytes_read(base_name(signature.name), signature.read.value, before, after);
    const std::int64_t written = bytes_of(before.out), written_after = bytes_of(after.out);
    const auto [work, work_after] = work_of(base_name(signature.name), before, after);
    const std::int64_t flop = signature.flop;
    const std::int64_t moved = signature.read.value + signature.written.value;
    signature.flop = scaled(flop, work, work_after);
    signature.read.value = scaled(signature.read.value, read, read_after);
    signature.written.value = scaled(signature.written.value, written, written_after);
    signature.scratch.value = scaled(signature.scratch.value, written, written_after);
    signature.detail = replace_shapes(signature.detail, after);
    EditOp& o = edit_.op(flow_.nodes[node].op);
    const std::int64_t moved_after = signature.read.value + signature.written.value;
    o.device_time.value = flop > 0 ? scaled(o.device_time.value, flop, signature.flop)
                                   : scaled(o.device_time.value, moved, moved_after);
    o.signature = edit_.add_signature(signature);
    edit_.touch(flow_.nodes[node].op);
    for (const StorageId s : flow_.made(edit_, node)) {
      const auto i = static_cast<std::size_t>(std::find(o.out.begin(), o.out.end(), s) - o.out.begin());
      edit_.set_bytes(s,
                      Bytes{scaled(edit_.bytes(s).value, before.out[i].elements(), after.out[i].elements())});
      if (after.out[i].elements() == 0) edit_.set_bytes(s, Bytes{0});
    }
  }

  EditableTrace& edit_;
  const std::size_t iteration_;
  const Rescale& request_;
  const Dataflow flow_;
  bool in_data_ = false, found_input_ = false;
  DimScale scale_;
  std::vector<DimScale::Route> routes_;
  std::unordered_map<std::uint32_t, KnownShapes> known_;
};

}  // namespace

bool is_routing(const EditableTrace& edit, const Dataflow& flow, std::uint32_t node) {
  const EditOp& op = edit.op(flow.nodes[node].op);
  if (op.sync != SyncKind::shape || op.out.empty()) return false;
  const SignatureShapes shapes = parse_shapes(edit.signature(op.signature).detail);
  return shapes.known && !shapes.out.empty() && !shapes.out[0].dims.empty();
}

void rescale_iteration(EditableTrace& edit, std::size_t iteration, const Rescale& request) {
  Rescaler(edit, iteration, request).run();
}

void change_dimensions(EditableTrace& edit, std::size_t iteration, std::string kind, const Rescale& request) {
  edit.open_change(std::move(kind), iteration);
  rescale_iteration(edit, iteration, request);
  edit.close_change();
}

}  // namespace swaplab
