#include "sim/machine_figures.hpp"

namespace swaplab {
namespace {

using M = Machine;
using I = std::int64_t;
constexpr auto size = Dimension::size;
constexpr auto ns = Dimension::duration;
constexpr auto rate = Dimension::bandwidth;
constexpr auto flops = Dimension::flop_rate;
constexpr auto share = Dimension::share;
constexpr auto pos = Range::positive;
constexpr auto any = Range::non_negative;
constexpr auto frac = Range::fraction;

constexpr MachineFigure kFigures[] = {
    {"hbm", "capacity", size, pos, false, [](M& m) -> I& { return m.hbm_capacity.value; }},
    {"hbm", "bandwidth", rate, pos, false, [](M& m) -> I& { return m.hbm_bytes_per_second; }},
    {"compute", "fp32", flops, pos, false, [](M& m) -> I& { return m.flop_rates.fp32; }},
    {"compute", "tf32", flops, pos, false, [](M& m) -> I& { return m.flop_rates.tf32; }},
    {"compute", "fp16", flops, pos, false, [](M& m) -> I& { return m.flop_rates.fp16; }},
    {"compute", "bf16", flops, pos, false, [](M& m) -> I& { return m.flop_rates.bf16; }},
    {"compute", "fp64", flops, pos, false, [](M& m) -> I& { return m.flop_rates.fp64; }},
    {"compute", "kernel_floor", ns, any, false, [](M& m) -> I& { return m.kernel_floor.value; }},
    {"compute", "launch_queue_depth", Dimension::kernels, pos, true,
     [](M& m) -> I& { return m.launch_queue_depth; }},
    {"host", "op_dispatch", ns, any, false, [](M& m) -> I& { return m.host.op_dispatch.value; }},
    {"host", "view_dispatch", ns, any, false, [](M& m) -> I& { return m.host.view_dispatch.value; }},
    {"host", "launch_latency", ns, any, false, [](M& m) -> I& { return m.host.launch_latency.value; }},
    {"host", "copy_submit", ns, any, false, [](M& m) -> I& { return m.host.copy_submit.value; }},
    {"host", "event_record", ns, any, false, [](M& m) -> I& { return m.host.event_record.value; }},
    {"host", "event_wait", ns, any, false, [](M& m) -> I& { return m.host.event_wait.value; }},
    {"host", "event_query", ns, any, false, [](M& m) -> I& { return m.host.event_query.value; }},
    {"host", "sync_resume", ns, any, false, [](M& m) -> I& { return m.host.sync_resume.value; }},
    {"host", "alloc_cached", ns, any, false, [](M& m) -> I& { return m.host.alloc_cached.value; }},
    {"host", "free_cached", ns, any, false, [](M& m) -> I& { return m.host.free_cached.value; }},
    {"host", "device_malloc", ns, any, false, [](M& m) -> I& { return m.host.device_malloc.value; }},
    {"host", "device_malloc_per_gib", ns, any, false,
     [](M& m) -> I& { return m.host.device_malloc_per_gib.value; }},
    {"host", "device_free", ns, any, false, [](M& m) -> I& { return m.host.device_free.value; }},
    {"host", "map_page", ns, any, false, [](M& m) -> I& { return m.host.map_page.value; }},
    {"host", "unmap_page", ns, any, false, [](M& m) -> I& { return m.host.unmap_page.value; }},
    {"host", "reserve_range", ns, any, false, [](M& m) -> I& { return m.host.reserve_range.value; }},
    {"host_memory", "capacity", size, any, true, [](M& m) -> I& { return m.host_memory.capacity.value; }},
    {"host_memory", "pin_per_gib", ns, any, false,
     [](M& m) -> I& { return m.host_memory.pin_per_gib.value; }},
    {"interference", "d2h_during_h2d", share, frac, false,
     [](M& m) -> I& { return m.interference.d2h_during_h2d; }},
    {"interference", "h2d_during_d2h", share, frac, false,
     [](M& m) -> I& { return m.interference.h2d_during_d2h; }},
    {"interference", "kernel_during_d2h", share, frac, false,
     [](M& m) -> I& { return m.interference.kernel_during_d2h; }},
    {"interference", "kernel_during_h2d", share, frac, false,
     [](M& m) -> I& { return m.interference.kernel_during_h2d; }},
};

}  // namespace

std::span<const MachineFigure> machine_figures() {
  return kFigures;
}

}  // namespace swaplab
