#include "trace/perturb/times.hpp"

#include "trace/error.hpp"

namespace swaplab {

void change_kernel_times(EditableTrace& edit, std::size_t iteration, const std::string& kind,
                         const std::function<std::int64_t()>& change_ppm) {
  edit.open_change(kind, iteration);
  bool timed = false;
  for (const Item& item : edit.iterations[iteration].items) {
    if (item.kind != ItemKind::op) continue;
    EditOp& op = edit.op(item.arg);
    if (op.device_time.value < 0 || edit.is_view(op.signature)) continue;
    timed = true;
    const std::int64_t ppm = change_ppm();
    const std::int64_t change =
        op.device_time.value / 1000 * ppm / 1000 + op.device_time.value % 1000 * ppm / 1'000'000;
    if (change == 0) continue;
    op.device_time.value += change;
    edit.touch(item.arg);
  }
  edit.close_change();
  if (!timed) {
    throw Error(ErrorKind::usage, kind + ": iteration " + std::to_string(edit.iterations[iteration].number) +
                                      " has no device times to change");
  }
}

}  // namespace swaplab
