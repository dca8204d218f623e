#include "trace/perturb/dims.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

namespace swaplab {
namespace {

using Dims = std::vector<std::int64_t>;

std::int64_t product(const Dims& dims) {
  return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
}

// A dimension that no argument explains.
Label by_value(std::int64_t dim, std::size_t place, std::size_t rank, const DimScale& scale) {
  Label label;
  if (scale.sequence > 0 && dim == scale.batch * scale.sequence && place == 0 && scale.batch > 1) {
    label.batch = label.sequence = 1;
  } else if (scale.batch > 0 && dim == scale.batch && place == 0 && rank > 1) {
    label.batch = 1;
  } else if (scale.sequence > 1 && dim == scale.sequence) {
    label.sequence = 1;
  }
  return label;
}

// Labels after a view that keeps the elements in order: dimensions are multiplied together and split up again
// in groups of equal products.
std::optional<Labels> regroup(const Dims& from, const Labels& labels, const Dims& to, const DimScale& scale) {
  Labels result(to.size());
  std::size_t i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    std::int64_t left = 1, right = 1;
    const std::size_t first_i = i, first_j = j;
    if (i < from.size()) left = from[i++];
    if (j < to.size()) right = to[j++];
    while (left != right) {
      if (left < right && i < from.size()) {
        left *= from[i++];
      } else if (j < to.size()) {
        right *= to[j++];
      } else {
        return std::nullopt;
      }
    }
    Label sum;
    for (std::size_t k = first_i; k < i; ++k) {
      sum.batch = static_cast<std::uint8_t>(sum.batch + labels[k].batch);
      sum.sequence = static_cast<std::uint8_t>(sum.sequence + labels[k].sequence);
      if (labels[k].offset != 0 && i - first_i + j - first_j > 2) return std::nullopt;
      sum.offset = labels[k].offset;
      if (labels[k].route != 0) sum.route = labels[k].route;
    }
    for (std::size_t k = first_j; k < j; ++k) {
      if (k + 1 == j) {  // the last one takes the rest
        result[k] = sum;
        break;
      }
      std::int64_t dim = to[k];
      Label& own = result[k];
      if (sum.route != 0 && dim % std::max<std::int64_t>(scale.routes[sum.route - 1u].before, 1) == 0 &&
          dim > 1) {
        own.route = std::exchange(sum.route, std::uint16_t{0});
        continue;
      }
      while (sum.batch > 0 && scale.batch > 1 && dim % scale.batch == 0) {
        dim /= scale.batch;
        ++own.batch;
        --sum.batch;
      }
      while (sum.sequence > 0 && scale.sequence > 1 && dim % scale.sequence == 0) {
        dim /= scale.sequence;
        ++own.sequence;
        --sum.sequence;
      }
    }
  }
  return result;
}

std::size_t place(std::int64_t attribute, std::size_t rank) {
  return static_cast<std::size_t>(attribute < 0 ? attribute + static_cast<std::int64_t>(rank) : attribute);
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Labels of_view(std::string_view name, const SignatureShapes& s, const Labels& in, const TensorShape& out,
               const DimScale& scale) {
  const Dims& from = s.in[0].dims;
  const Dims& to = out.dims;
  if (name == "t" && from.size() == 2) return {in[1], in[0]};
  if (name == "transpose" && s.attr.size() >= 2) {
    Labels labels = in;
    const std::size_t a = place(s.attr[0], from.size()), b = place(s.attr[1], from.size());
    if (a < labels.size() && b < labels.size()) std::swap(labels[a], labels[b]);
    return labels;
  }
  if (name == "permute" && s.attr.size() == from.size()) {
    Labels labels;
    for (const std::int64_t a : s.attr) labels.push_back(in[place(a, from.size())]);
    return labels;
  }
  if (from == to) return in;
  if (name != "expand" && product(from) == product(to)) {
    if (auto labels = regroup(from, in, to, scale)) return *labels;
  }
  Labels labels(to.size());
  if (to.size() + 1 == from.size() && is_one_of(name, {"unbind", "select"}) && !s.attr.empty()) {
    const std::size_t gone = place(s.attr[0], from.size());
    for (std::size_t i = 0; i < to.size(); ++i) labels[i] = in[i < gone ? i : i + 1];
    return labels;
  }
  // A part of a dimension that derives from nothing derives from nothing.
  const bool part = is_one_of(name, {"split", "split_with_sizes", "chunk", "slice", "narrow"});
  // Slices keep the rank, expand adds dimensions on the left.
  const std::size_t shift = to.size() - std::min(to.size(), from.size());
  for (std::size_t i = 0; i < to.size(); ++i) {
    const bool matched = i >= shift && to[i] == from[i - shift];
    if (matched) {
      labels[i] = in[i - shift];
    } else if (!(part && i >= shift && in[i - shift].constant())) {
      labels[i] = by_value(to[i], i, to.size(), scale);
    }
  }
  return labels;
}

// A product of matrices contracts one dimension of each; empty when the labels of both differ.
std::optional<Labels> matrix_product(const Labels& a, const Labels& b) {
  if (a.size() < 2 || b.size() < 2 || !(a.back() == b[b.size() - 2])) return std::nullopt;
  Labels labels(a.begin(), a.end() - 1);
  labels.push_back(b.back());
  return labels;
}

Labels by_arguments(const TensorShape& out, const SignatureShapes& s, const std::vector<Labels>& in,
                    const DimScale& scale) {
  const std::size_t rank = out.dims.size();
  // The same shape: the argument with the most to say.
  const Labels* best = nullptr;
  std::size_t best_count = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (s.in[i].dims != out.dims) continue;
    const auto count = static_cast<std::size_t>(
        std::count_if(in[i].begin(), in[i].end(), [](const Label& l) { return !l.constant(); }));
    if (best != nullptr && count <= best_count) continue;
    best = &in[i];
    best_count = count;
  }
  if (best != nullptr) return *best;
  Labels labels(rank);
  for (std::size_t d = 0; d < rank; ++d) {
    bool found = false;
    const auto take = [&](const Label& label) {
      if (!found || (labels[d].constant() && !label.constant())) labels[d] = label;
      found = true;
    };
    for (std::size_t i = 0; i < in.size(); ++i) {  // same place from the left or from the right
      const Dims& dims = s.in[i].dims;
      if (d < dims.size() && dims[d] == out.dims[d]) take(in[i][d]);
      if (dims.size() <= rank && d + dims.size() >= rank && dims[d + dims.size() - rank] == out.dims[d])
        take(in[i][d + dims.size() - rank]);
    }
    if (!found) {
      for (std::size_t i = 0; i < in.size(); ++i) {
        for (std::size_t k = 0; k < in[i].size(); ++k) {
          if (s.in[i].dims[k] == out.dims[d] && out.dims[d] > 1) take(in[i][k]);
        }
      }
    }
    if (!found) labels[d] = by_value(out.dims[d], d, rank, scale);
  }
  return labels;
}

}  // namespace

std::int64_t DimScale::apply(std::int64_t dim, Label label) const {
  if (label.constant()) return dim;
  std::int64_t value = dim - label.offset;
  const auto factor = [&](std::int64_t before, std::int64_t after) {
    if (before <= 0 || value % before != 0) return false;
    value = value / before * after;
    return true;
  };
  for (int i = 0; i < label.batch; ++i) {
    if (!factor(batch, new_batch)) return -1;
  }
  for (int i = 0; i < label.sequence; ++i) {
    if (!factor(sequence, new_sequence)) return -1;
  }
  if (label.route != 0) {
    const Route& route = routes[label.route - 1u];
    if (route.before == 0 ? value != 0 : !factor(route.before, route.after)) return -1;
  }
  return value + label.offset;
}

void KnownShapes::add(const Dims& dims, const Labels& labels) {
  if (!seen_.empty() && seen_.back().first == dims && seen_.back().second == labels) return;
  seen_.emplace_back(dims, labels);
}

Labels KnownShapes::find(const Dims& dims, const DimScale& scale) const {
  for (auto it = seen_.rbegin(); it != seen_.rend(); ++it) {
    if (it->first == dims) return it->second;
  }
  for (auto it = seen_.rbegin(); it != seen_.rend(); ++it) {
    if (product(it->first) != product(dims)) continue;
    if (auto labels = regroup(it->first, it->second, dims, scale)) return *labels;
  }
  return Labels(dims.size());
}

std::vector<Labels> data_labels(const SignatureShapes& shapes, const DimScale& scale) {
  std::vector<Labels> result;
  for (const TensorShape& t : shapes.out) {
    Labels labels(t.dims.size());
    for (std::size_t d = 0; d < t.dims.size(); ++d) {
      if (d == 0 && t.dims[0] == scale.batch) labels[0].batch = 1;
      if (d == 0 || scale.sequence == 0) continue;
      if (t.dims[d] == scale.sequence || t.dims[d] == scale.sequence + 1) {
        labels[d].sequence = 1;  // inputs and targets are cut from one more token
        labels[d].offset = static_cast<std::int8_t>(t.dims[d] - scale.sequence);
      }
    }
    result.push_back(std::move(labels));
  }
  return result;
}

std::vector<Labels> derive_labels(std::string_view name, bool view, const SignatureShapes& s,
                                  const std::vector<Labels>& in, const DimScale& scale) {
  std::vector<Labels> result;
  const auto constant = [&](std::size_t i) { return Labels(s.out[i].dims.size()); };
  if (is_one_of(name, {"mm", "bmm", "matmul", "addmm", "baddbmm"}) && s.out.size() == 1) {
    const std::size_t first = name.starts_with("add") || name.starts_with("badd") ? 1 : 0;
    if (in.size() >= first + 2 && in[first].size() == in[first + 1].size()) {
      if (auto labels = matrix_product(in[first], in[first + 1])) return {*labels};
      return {};
    }
  }
  for (std::size_t i = 0; i < s.out.size(); ++i) {
    const TensorShape& out = s.out[i];
    if ((view || is_one_of(name, {"_unsafe_view", "reshape"})) && !in.empty()) {
      result.push_back(of_view(name, s, in[0], out, scale));
    } else if (name == "embedding" && in.size() == 2 && out.dims.size() == in[1].size() + 1) {
      result.push_back(in[1]);
      result.back().push_back(in[0].back());
    } else if (name == "embedding_dense_backward") {
      result.push_back(constant(i));  // a gradient of a parameter
    } else if (name == "convolution" && in.size() >= 2 && out.dims.size() == in[0].size()) {
      result.push_back(constant(i));
      result.back()[0] = in[0][0];
    } else if (name == "convolution_backward" && in.size() >= 3) {
      // Gradients of input, weight and bias; absent ones are not listed.
      result.push_back(out.dims == s.in[1].dims ? in[1] : constant(i));
    } else if (name == "sum" && in.size() == 1 && s.in[0].dims.size() == out.dims.size()) {
      result.push_back(constant(i));
      for (std::size_t d = 0; d < out.dims.size(); ++d) {
        // The attributes name the dimensions that were summed over; one of size 1 keeps its size.
        const bool summed = std::any_of(s.attr.begin(), s.attr.end(), [&](std::int64_t a) {
          return a != kAttrOther && place(a, out.dims.size()) == d;
        });
        if (!summed && out.dims[d] == s.in[0].dims[d]) result.back()[d] = in[0][d];
      }
    } else {
      result.push_back(by_arguments(out, s, in, scale));
    }
  }
  return result;
}

void rescale_attributes(std::string_view name, const SignatureShapes& before, SignatureShapes& after) {
  std::vector<std::int64_t>& attr = after.attr;
  if (name == "slice" && attr.size() >= 3 && !before.out.empty()) {
    const std::size_t dim = place(attr[0], before.out[0].dims.size());
    if (dim < before.out[0].dims.size() && attr[2] == before.out[0].dims[dim])
      attr[2] = after.out[0].dims[dim];
    return;
  }
  for (std::size_t i = 0; i < before.out.size(); ++i) {
    const Dims& old_dims = before.out[i].dims;
    const std::size_t rank = old_dims.size();
    if (rank == 0) continue;
    const auto found = std::search(attr.begin(), attr.end(), old_dims.begin(), old_dims.end());
    if (found == attr.end()) continue;
    const auto at = static_cast<std::size_t>(found - attr.begin());
    std::copy(after.out[i].dims.begin(), after.out[i].dims.end(), found);
    if (attr.size() < at + 2 * rank) return;
    // Strides follow: kept in their order from the fastest dimension to the slowest, if they are dense.
    std::vector<std::size_t> order(rank);
    std::iota(order.begin(), order.end(), std::size_t{0});
    const std::vector<std::int64_t> strides(attr.begin() + static_cast<std::ptrdiff_t>(at + rank),
                                            attr.begin() + static_cast<std::ptrdiff_t>(at + 2 * rank));
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return strides[a] != strides[b] ? strides[a] < strides[b] : a > b;
    });
    std::int64_t old_step = 1, new_step = 1;
    std::vector<std::int64_t> next = strides;
    for (const std::size_t d : order) {
      if (strides[d] != old_step) return;
      next[d] = new_step;
      old_step *= old_dims[d];
      new_step *= after.out[i].dims[d];
    }
    std::copy(next.begin(), next.end(), attr.begin() + static_cast<std::ptrdiff_t>(at + rank));
    return;
  }
}

std::pair<std::int64_t, std::int64_t> work_of(std::string_view name, const SignatureShapes& before,
                                              const SignatureShapes& after) {
  const auto measure = [&](const SignatureShapes& s) -> std::int64_t {
    if (s.in.empty() && s.out.empty()) return 1;
    const auto inner = [&](std::size_t i) { return s.in[i].dims.empty() ? 1 : s.in[i].dims.back(); };
    if (is_one_of(name, {"mm", "bmm", "matmul"}) && s.in.size() >= 2) return s.out[0].elements() * inner(0);
    if (is_one_of(name, {"addmm", "baddbmm"}) && s.in.size() >= 3) return s.out[0].elements() * inner(1);
    const bool attention =
        name.find("flash") != std::string_view::npos || name.find("attention") != std::string_view::npos;
    if (attention && !s.in.empty() && s.in[0].dims.size() >= 3)
      return s.in[0].elements() * s.in[0].dims[s.in[0].dims.size() - 2];
    if (name == "convolution") return s.out[0].elements();
    if (!s.in.empty() && s.in[0].elements() > 0) {
      std::int64_t largest = 0;
      for (const auto* list : {&s.in, &s.out}) {
        for (const TensorShape& t : *list) largest = std::max(largest, t.elements());
      }
      return largest;
    }
    return s.out.empty() ? 1 : s.out[0].elements();
  };
  return {measure(before), measure(after)};
}

}  // namespace swaplab
