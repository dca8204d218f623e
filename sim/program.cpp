#include "sim/program.hpp"

#include "sim/program_compiler.hpp"

namespace swaplab {

Program compile_program(const Trace& trace, const Machine& machine, TimeSource times) {
  ProgramCompiler compiler(trace, machine, times);
  compiler.append(static_cast<std::uint32_t>(trace.ops.size()));
  compiler.close();
  return std::move(compiler.program());
}

AccessIndex index_accesses(const Program& program) {
  AccessIndex result;
  result.begin.assign(program.slot_count() + 1, 0);
  for (const Access& access : program.accesses) ++result.begin[index(access.slot) + 1];
  for (std::uint32_t s = 0; s < program.slot_count(); ++s) result.begin[s + 1] += result.begin[s];
  result.ops.resize(program.accesses.size());
  result.flags.resize(program.accesses.size());
  std::vector<std::uint32_t> next(result.begin.begin(), result.begin.end() - 1);
  for (std::uint32_t op = 0; op < program.op_count(); ++op) {
    for (const Access& access : program.accesses_of(op)) {
      const std::uint32_t row = next[index(access.slot)]++;
      result.ops[row] = op;
      result.flags[row] = access.flags;
    }
  }
  return result;
}

}  // namespace swaplab
