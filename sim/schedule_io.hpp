// Schedule files: JSON lines (plain, .gz, .zst), all numbers exact integers.
//
//   header   {"schema":"swaplab/schedule@1","trace":"gpt.jsonl.gz","trace_hash":123,"iterations":10,
//             "times":"trace","policy":"lru","allocator":"ideal","budget_bytes":1000,
//             "initial_device":[0,1],"initial_host":[2],"machine":"{...}"}
//            `machine` is the text of machine_json(); iterations 0 means as recorded.
//   entries  one line each, in the order in which the host issued them; times in ns, sizes in bytes:
//            ["op",operator,stream,start,end]
//            ["out",storage,bytes,start,end]    copy to the host
//            ["in",storage,bytes,start,end]     copy to the device
//            ["acquire",storage,bytes,at]       device bytes taken at this host time
//            ["release",storage,bytes,at]       device bytes given up at this host time
//   end      {"end":N,"result":{...}}           N entries; the result that the run claims
#pragma once

#include <string>
#include <string_view>

#include "sim/schedule.hpp"

namespace swaplab {

// Compressed when `path` ends in .gz or .zst. Atomic: a temporary file beside the target is renamed
// when complete. Throws Error(output).
inline constexpr std::string_view kScheduleEndings[] = {".jsonl", ".jsonl.gz", ".jsonl.zst"};
void write_schedule(const Schedule& schedule, const std::string& path);
// The compression is recognised by content. Throws Error(input) with file and line.
Schedule read_schedule(const std::string& path);

// The same on text in memory; `name` stands for the file in messages.
std::string schedule_text(const Schedule& schedule);
Schedule parse_schedule(std::string_view text, const std::string& name);

}  // namespace swaplab
