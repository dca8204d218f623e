// Which dimension of a tensor derives from the batch, the sequence or a routed token count (private to
// rescale.cpp).
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/perturb/shapes.hpp"

namespace swaplab {

// A dimension is (batch^b * sequence^t * constant), or a routed count times a constant, plus an offset.
struct Label {
  std::uint8_t batch = 0, sequence = 0;
  std::int8_t offset = 0;
  std::uint16_t route = 0;  // number of the route from 1; 0: none
  bool constant() const { return batch == 0 && sequence == 0 && route == 0; }
  bool operator==(const Label&) const = default;
};
using Labels = std::vector<Label>;

struct DimScale {
  struct Route {
    std::int64_t before, after;
  };
  std::int64_t batch = 0, new_batch = 0, sequence = 0, new_sequence = 0;
  std::vector<Route> routes;
  // The dimension's new value; -1 when it is no multiple of what its label says.
  std::int64_t apply(std::int64_t dim, Label label) const;
};

// Shapes under which a storage has been seen, with their labels, newest last.
class KnownShapes {
 public:
  void add(const std::vector<std::int64_t>& dims, const Labels& labels);
  // The newest of this shape, else regrouped from one of as many elements, else constant.
  Labels find(const std::vector<std::int64_t>& dims, const DimScale& scale) const;

 private:
  std::vector<std::pair<std::vector<std::int64_t>, Labels>> seen_;
};

// Labels of results that the data phase makes: by value.
std::vector<Labels> data_labels(const SignatureShapes& shapes, const DimScale& scale);
// Labels of an operator's results from those of its arguments; empty when the arguments contradict each
// other.
std::vector<Labels> derive_labels(std::string_view name, bool view, const SignatureShapes& shapes,
                                  const std::vector<Labels>& in, const DimScale& scale);
// Attributes that repeat a result's shape, its strides, or the end of a slice.
void rescale_attributes(std::string_view name, const SignatureShapes& before, SignatureShapes& after);
// A number that the operator's FLOP are proportional to, before and after.
std::pair<std::int64_t, std::int64_t> work_of(std::string_view name, const SignatureShapes& before,
                                              const SignatureShapes& after);

}  // namespace swaplab
