#include "gpu_validate/integrity.hpp"

#include <algorithm>

namespace swaplab {
namespace {

constexpr std::size_t kMostFindings = 20;

std::string storage_text(const Program& program, Slot slot) {
  std::string text = "storage " + std::to_string(index(program.origin[index(slot)]));
  const std::string_view name = program.names[program.slot_name[index(slot)]];
  if (!name.empty()) text += " '" + std::string(name) + "'";
  return text;
}

// The decisions about the storage up to an entry of the schedule, newest first.
std::string decisions(const Program& program, const Schedule& schedule, Slot slot, std::uint32_t entry) {
  std::string text;
  const std::uint32_t storage = index(program.origin[index(slot)]);
  int wanted = 3;
  for (std::size_t i = std::min<std::size_t>(entry + std::size_t{1}, schedule.entries.size());
       i-- > 0 && wanted > 0;) {
    const ScheduleEntry& e = schedule.entries[i];
    if (e.kind == ScheduleKind::op || e.index != storage) continue;
    const char* what = e.kind == ScheduleKind::copy_out  ? "copied out"
                       : e.kind == ScheduleKind::copy_in ? "copied in"
                       : e.kind == ScheduleKind::acquire ? "device bytes taken"
                                                         : "device bytes given up";
    std::size_t op = i;  // the next operator that was issued
    while (op < schedule.entries.size() && schedule.entries[op].kind != ScheduleKind::op) ++op;
    text += std::string(text.empty() ? "" : ", ") + what + " by schedule entry " + std::to_string(i);
    if (op < schedule.entries.size())
      text += " (before operator " + std::to_string(schedule.entries[op].index) + ")";
    --wanted;
  }
  return text.empty() ? "no decision moved it" : "decisions, newest first: " + text;
}

std::string describe(const Program& program, const Schedule& schedule, const RealDevice& device,
                     const Finding& finding) {
  const Slot slot{finding.slot};
  const LaneEvent& work = device.work(finding.lane, finding.ticket);
  std::string text = storage_text(program, slot) + " is wrong at byte " + std::to_string(finding.word * 8) +
                     " of " + std::to_string(device.held_bytes(slot).value) + ": ";
  if (work.op != kNever) {
    text += "operator " + std::to_string(work.op);
    const std::string_view name = program.names[program.name[work.op]];
    if (!name.empty()) text += " (" + std::string(name) + ")";
  } else {
    text += "its swap-in";
  }
  const auto expected = device.owner_of(finding.expected, finding.word);
  text += expected ? " needs version " + std::to_string(expected->second) : " needs other content";
  const auto owner = device.owner_of(finding.found, finding.word);
  text += owner ? " and finds version " + std::to_string(owner->second) + " of " +
                      storage_text(program, owner->first)
                : " and finds bytes that are no storage's at this place";
  return text + "; " + decisions(program, schedule, slot, work.log);
}

}  // namespace

Integrity check_integrity(const Program& program, const Schedule& schedule, const RealDevice& device,
                          Accelerator& accelerator) {
  Integrity integrity;
  integrity.counts = accelerator.verified();
  std::vector<Finding> findings = accelerator.findings();
  // In the order in which the work was issued: the first is the cause, later ones often follow from it.
  std::stable_sort(findings.begin(), findings.end(), [&](const Finding& a, const Finding& b) {
    return device.work(a.lane, a.ticket).log < device.work(b.lane, b.ticket).log;
  });
  for (const Finding& finding : findings) {
    if (integrity.findings.size() == kMostFindings) break;
    integrity.findings.push_back(describe(program, schedule, device, finding));
  }
  return integrity;
}

}  // namespace swaplab
