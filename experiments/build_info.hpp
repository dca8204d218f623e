// What this program was built from.
#pragma once

namespace swaplab {

constexpr const char* kToolVersion = "0.1.0";
const char* build_commit();    // "unknown" outside a git checkout
bool build_dirty();            // the checkout had uncommitted changes
const char* build_compiler();  // "GNU 12.2.0"
const char* build_flags();

}  // namespace swaplab
