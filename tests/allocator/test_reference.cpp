// Every recorded answer of PyTorch's real allocator (shared reference/allocator), line by line.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "sim/allocator/replay.hpp"
#include "tests/support/shared.hpp"

namespace {

using swaplab::ReplayOptions;
using swaplab::RequestLog;

struct Case {
  std::string kind, requests, results;
  ReplayOptions options;
};

std::vector<Case> read_index(const std::string& path) {
  std::istringstream in(swaplab::test::read_file(path));
  std::string line;
  std::getline(in, line);
  std::vector<Case> cases;
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    Case next;
    std::string capacity, fraction;
    std::getline(fields, next.kind, '\t');
    std::getline(fields, next.requests, '\t');
    std::getline(fields, next.results, '\t');
    std::getline(fields, next.options.conf, '\t');
    std::getline(fields, capacity, '\t');
    std::getline(fields, fraction, '\t');
    if (next.options.conf == "(default)") next.options.conf.clear();
    next.options.capacity = std::stoull(capacity);
    next.options.fraction = std::stod(fraction);
    const std::string file = next.results.substr(next.results.find('/') + 1);
    next.options.name = file.substr(0, file.find(".res.gz"));
    next.options.request_name = next.requests.substr(next.requests.find('/') + 1);
    if (next.kind != "hand") next.options.summarise();
    cases.push_back(next);
  }
  return cases;
}

// The order of several `~ADDR` within one request is that of a hash map: sort each run of them.
std::string with_sorted_deferred_frees(const std::string& line) {
  if (line.find(" ~") == std::string::npos) return line;
  std::istringstream in(line);
  std::vector<std::string> words, deferred;
  for (std::string word; in >> word;) (word[0] == '~' ? deferred : words).push_back(word);
  std::sort(deferred.begin(), deferred.end());
  std::string sorted;
  for (const auto& list : {words, deferred}) {
    for (const std::string& word : list) sorted += word + ' ';
  }
  return sorted;
}

// Number of lines compared; the first difference fails the test with both lines.
std::size_t compare(const std::string& expected, const std::string& actual, const std::string& name) {
  std::istringstream want(expected), got(actual);
  std::string want_line, got_line;
  std::size_t count = 0;
  while (std::getline(want, want_line)) {
    ++count;
    if (!std::getline(got, got_line)) got_line = "(missing)";
    if (with_sorted_deferred_frees(want_line) == with_sorted_deferred_frees(got_line)) continue;
    FAIL_CHECK(name << " line " << count << "\n expected " << want_line << "\n actual   " << got_line);
    return count;
  }
  if (std::getline(got, got_line)) FAIL_CHECK(name << " has an extra line: " << got_line);
  return count;
}

}  // namespace

TEST_CASE("allocator: all reference results of PyTorch 2.4") {
  const auto index = swaplab::test::shared_path("reference/allocator/index.tsv");
  if (!index) return;
  const std::string root = index->substr(0, index->rfind('/') + 1);
  std::map<std::string, int> passed;
  std::map<std::string, RequestLog> logs;
  std::size_t lines = 0, requests = 0;
  for (const Case& next : read_index(*index)) {
    if (!logs.contains(next.requests)) {
      std::istringstream in(swaplab::test::read_file(root + next.requests));
      logs[next.requests] = swaplab::parse_requests(in, next.requests);
    }
    const RequestLog& log = logs[next.requests];
    std::ostringstream out;
    swaplab::replay_requests(log, next.options, out);
    lines += compare(swaplab::test::read_file(root + next.results), out.str(), next.results);
    requests += log.requests.size();
    ++passed[next.kind];
  }
  CHECK(passed["hand"] == 52);
  CHECK(passed["random"] == 168);
  CHECK(passed["recorded"] == 18);
  MESSAGE(lines << " lines compared, " << requests << " requests replayed");
}
