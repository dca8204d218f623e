#include "experiments/sweep/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "trace/error.hpp"

namespace swaplab {

ProcessResult run_process(const std::vector<std::string>& arguments) {
  std::array<int, 2> out{}, err{};
  if (::pipe2(out.data(), O_CLOEXEC) != 0 || ::pipe2(err.data(), O_CLOEXEC) != 0)
    throw Error(ErrorKind::output, std::string("cannot make a pipe: ") + std::strerror(errno));
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) throw Error(ErrorKind::output, std::string("cannot start a process: ") + std::strerror(errno));
  if (pid == 0) {
    ::dup2(out[1], STDOUT_FILENO);
    ::dup2(err[1], STDERR_FILENO);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(out[1]);
  ::close(err[1]);
  ProcessResult result;
  std::array<pollfd, 2> ends{{{out[0], POLLIN, 0}, {err[0], POLLIN, 0}}};
  int open = 2;
  while (open > 0) {
    if (::poll(ends.data(), ends.size(), -1) < 0 && errno != EINTR) break;
    for (std::size_t i = 0; i < 2; ++i) {
      if (ends[i].fd < 0 || ends[i].revents == 0) continue;
      char buffer[4096];
      const ssize_t size = ::read(ends[i].fd, buffer, sizeof buffer);
      if (size < 0 && errno == EINTR) continue;
      if (size <= 0) {
        ends[i].fd = -1;
        --open;
      } else {
        (i == 0 ? result.output : result.errors).append(buffer, static_cast<std::size_t>(size));
      }
    }
  }
  ::close(out[0]);
  ::close(err[0]);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

std::string own_program() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) throw Error(ErrorKind::invariant, "cannot find this program: " + error.message());
  return path.string();
}

}  // namespace swaplab
