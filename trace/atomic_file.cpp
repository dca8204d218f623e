#include "trace/atomic_file.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "trace/error.hpp"

namespace swaplab {
namespace {

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  std::string host(name);
  for (char& c : host) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return host.substr(0, 40);  // file names are short
}

// A process of that number may be another one by now: then the file stays.
bool ended(std::string_view number) {
  pid_t pid = 0;
  const auto [end, code] = std::from_chars(number.data(), number.data() + number.size(), pid);
  return code == std::errc{} && end == number.data() + number.size() && pid > 0 && ::kill(pid, 0) != 0 &&
         errno == ESRCH;
}

}  // namespace

std::string partial_file(const std::string& path) {
  namespace fs = std::filesystem;
  const std::string prefix = fs::path(path).filename().string() + ".partial-" + host_name() + "-";
  const fs::path folder = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : fs::path(".");
  std::error_code code;
  for (fs::directory_iterator at(folder, code), last; !code && at != last; at.increment(code)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(prefix) && ended(std::string_view(name).substr(prefix.size())))
      ::unlink(at->path().c_str());
  }
  return (fs::path(path).parent_path() / (prefix + std::to_string(::getpid()))).string();
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  // The file that a link names is replaced, not the link; a device or pipe must never become a file.
  std::error_code ignored;
  const auto target = std::filesystem::canonical(path_, ignored);
  if (!ignored) {
    if (!std::filesystem::is_regular_file(target, ignored))
      throw Error(ErrorKind::output, path_ + ": cannot write: it exists and is not a regular file");
    path_ = target.string();
  }
  temporary_ = partial_file(path_);
  file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) {
    // The destructor does not run for a constructor that throws; nothing was created.
    throw Error(ErrorKind::output, path_ + ": cannot write: " + std::strerror(errno));
  }
  // What is replaced keeps who may read it.
  struct stat before {};
  if (::stat(path_.c_str(), &before) == 0) ::fchmod(file_, before.st_mode & 07777);
}

AtomicFile::~AtomicFile() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::fail(const char* what) {
  throw Error(ErrorKind::output, path_ + ": " + what + ": " + std::strerror(errno));
}

void AtomicFile::write_all(const char* data, std::size_t size, std::uint64_t offset) {
  while (size > 0) {
    const ssize_t count = ::pwrite(file_, data, size, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail("cannot write");
    data += count;
    size -= static_cast<std::size_t>(count);
    offset += static_cast<std::uint64_t>(count);
  }
}

void AtomicFile::append(const void* data, std::size_t size) {
  write_all(static_cast<const char*>(data), size, size_);
  size_ += size;
}

void AtomicFile::write_at(std::uint64_t offset, const void* data, std::size_t size) {
  write_all(static_cast<const char*>(data), size, offset);
}

void AtomicFile::commit() {
  if (::fsync(file_) != 0 && errno != EINVAL && errno != EROFS) fail("cannot write");
  const int file = file_;
  file_ = -1;
  if (::close(file) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int reason = errno;
    ::unlink(temporary_.c_str());
    errno = reason;
    fail("cannot put the complete file in place");
  }
}

}  // namespace swaplab
