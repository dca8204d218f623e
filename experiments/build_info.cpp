#include "experiments/build_info.hpp"

#include "swaplab_commit.hpp"  // written at build time, see commit.cmake

namespace swaplab {

const char* build_commit() {
  return SWAPLAB_COMMIT;
}
bool build_dirty() {
  return SWAPLAB_DIRTY;
}
const char* build_compiler() {
  return SWAPLAB_COMPILER;
}
const char* build_flags() {
  return SWAPLAB_FLAGS;
}

}  // namespace swaplab
