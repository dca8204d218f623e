// Files appear complete or not at all, and what a killed writer left behind goes with the next write.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "trace/atomic_file.hpp"
#include "trace/byte_source.hpp"

namespace swaplab {
namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path = fs::temp_directory_path() / ("swaplab-atomic-" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& entry : fs::directory_iterator(path)) all.insert(entry.path().filename().string());
    return all;
  }
};

void touch(const fs::path& path) {
  std::ofstream(path) << "half";
}

TEST_CASE("a killed writer's partial file is removed by the next write of that output") {
  const Folder folder;
  const std::string target = (folder.path / "out.swt").string();
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    AtomicFile file(target);
    file.append("half", 4);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(folder.names().size() == 1);
  const std::string left = *folder.names().begin();
  CHECK(left.ends_with("-" + std::to_string(child)));

  write_file_atomically((folder.path / "other.swt").string(), "x");
  CHECK(folder.names().count(left) == 1);  // another output's
  write_file_atomically(target, "whole");
  CHECK(folder.names() == std::set<std::string>{"other.swt", "out.swt"});
}

TEST_CASE("partial files of living processes, of other hosts and of other names stay") {
  const Folder folder;
  const std::string target = (folder.path / "out.swt").string();
  const pid_t living = ::fork();
  REQUIRE(living >= 0);
  if (living == 0) {
    ::pause();
    ::_exit(0);
  }
  const pid_t ended = ::fork();
  REQUIRE(ended >= 0);
  if (ended == 0) ::_exit(0);
  ::waitpid(ended, nullptr, 0);

  const std::string own = partial_file(target);
  const std::string prefix = own.substr(0, own.rfind('-') + 1);  // with this host's name
  const std::string number = std::to_string(ended);
  touch(prefix + std::to_string(living));
  touch(target + ".partial-elsewhere-" + number);
  touch(target + ".partial-" + number);  // no host: it may be another one's
  touch(prefix + number + "x");
  const std::set<std::string> before = folder.names();
  REQUIRE(before.size() == 4);
  touch(prefix + number);
  write_file_atomically(target, "whole");
  std::set<std::string> after = before;
  after.insert("out.swt");
  CHECK(folder.names() == after);
  ::kill(living, SIGKILL);
  ::waitpid(living, nullptr, 0);
}

}  // namespace
}  // namespace swaplab
