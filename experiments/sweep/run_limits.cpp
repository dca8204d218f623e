// A run in a process of its own, under limits.
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <new>

#include "experiments/sweep/sweep_engine.hpp"
#include "trace/error.hpp"
#include "trace/human.hpp"

namespace swaplab {
namespace {

constexpr int kExitMemory = 40, kExitError = 41;

// Address space of this process in bytes.
rlim_t address_space() {
  std::ifstream in("/proc/self/statm");
  std::uint64_t pages = 0;
  in >> pages;
  return static_cast<rlim_t>(pages) * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

void write_all(int file, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(file, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    done += static_cast<std::size_t>(count);
  }
}

// In the child: nothing of the parent's may be destroyed, so it leaves by _exit.
[[noreturn]] void child(int file, const RunLimits& limits, const std::function<std::string()>& work) {
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  if (limits.memory > Bytes{0}) {
    const rlim_t size = address_space() + static_cast<rlim_t>(limits.memory.value);
    const rlimit space{size, size};
    ::setrlimit(RLIMIT_AS, &space);
  }
  try {
    write_all(file, work());
    ::_exit(0);
  } catch (const std::bad_alloc&) {
    ::_exit(kExitMemory);
  } catch (const std::exception& error) {
    write_all(file, error.what());
    ::_exit(kExitError);
  }
}

}  // namespace

LimitedOutcome run_limited(const RunLimits& limits, const std::function<std::string()>& work) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw Error(ErrorKind::output, std::string("cannot make a pipe: ") + std::strerror(errno));
  const pid_t pid = ::fork();
  if (pid < 0) {
    ::close(ends[0]);
    ::close(ends[1]);
    throw Error(ErrorKind::output, std::string("cannot start a process: ") + std::strerror(errno));
  }
  if (pid == 0) {
    ::close(ends[0]);
    child(ends[1], limits, work);
  }
  ::close(ends[1]);
  LimitedOutcome outcome;
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::nanoseconds(limits.time.value);
  bool late = false;
  while (true) {
    int wait_ms = -1;
    if (limits.time > Nanos{0} && !late) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count() + 1;
      wait_ms = static_cast<int>(std::max<std::int64_t>(0, std::min<std::int64_t>(left, 1'000'000)));
    }
    pollfd ready{ends[0], POLLIN, 0};
    const int count = ::poll(&ready, 1, wait_ms);
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) {
      if (Clock::now() < deadline) continue;
      late = true;
      ::kill(pid, SIGKILL);
      continue;
    }
    char buffer[1 << 16];
    const ssize_t size = ::read(ends[0], buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) {
      late |= limits.time > Nanos{0} && Clock::now() > deadline;
      break;
    }
    outcome.text.append(buffer, static_cast<std::size_t>(size));
  }
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (late) {
    outcome.status = "timeout";
    outcome.explanation = "took longer than the limit of " + exact_time(limits.time) + " of wall time";
  } else if (WIFSIGNALED(status)) {
    outcome.status = "crashed";
    outcome.explanation = "the run's process was ended by signal " + std::to_string(WTERMSIG(status));
  } else if (WEXITSTATUS(status) == kExitMemory) {
    outcome.status = "memory_limit";
    outcome.explanation = "needed more than " + exact_bytes(limits.memory) + " of host memory";
  } else if (WEXITSTATUS(status) != 0) {
    outcome.status = "crashed";
    outcome.explanation = outcome.text.empty() ? "the run's process failed" : outcome.text;
  }
  if (!outcome.status.empty()) outcome.text.clear();
  return outcome;
}

}  // namespace swaplab
