// Least recently used on demand, as in virtual memory.
#include "policy/policy.hpp"

namespace swaplab {
namespace {

struct LruParams {
  Bytes min_bytes{0};
};

class Lru final : public Policy {
 public:
  explicit Lru(LruParams params) : params_(params) {}
  void make_room(Bytes shortfall, const View& view, Actions& actions) override {
    evict_oldest(shortfall, view, actions, params_.min_bytes);
  }

 private:
  LruParams params_;
};

SWAPLAB_REGISTER_POLICY(
    Lru, LruParams,
    {"lru", "On demand, least recently used storages leave first; no prefetch", "", Needs::none},
    {bytes_parameter("min_bytes", &LruParams::min_bytes, "smaller storages never leave")});

}  // namespace
}  // namespace swaplab
