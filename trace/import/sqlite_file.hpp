// Tables of an SQLite database that is only read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trace/import/input.hpp"

struct sqlite3;
struct sqlite3_stmt;

namespace swaplab {

// One row of a query; columns from 0.
class SqliteRow {
 public:
  explicit SqliteRow(sqlite3_stmt* statement) : statement_(statement) {}
  // Whether the columns from `first` on hold integers: no NULL, text, real or blob.
  bool all_integers(int first, int count) const;
  std::int64_t integer(int column) const;   // 0 for NULL; a text or real as SQLite converts it
  std::string_view text(int column) const;  // valid until the next row; "" for NULL

 private:
  sqlite3_stmt* statement_;
};

// A plain file is opened in place, immutable: no lock, no journal, nothing is written beside it. Compressed
// files (up to 1 GiB) and bytes in memory are read whole. Every method throws Error(input) with the file and
// SQLite's message; work is bounded, so that a damaged file cannot keep it busy forever.
class SqliteFile {
 public:
  explicit SqliteFile(const ImportInput& input);

  // Column names of a table; empty when there is no such ordinary table.
  std::vector<std::string> columns(const std::string& table);
  std::int64_t count(const std::string& table);
  void query(const std::string& sql, const std::function<void(const SqliteRow&)>& row);

 private:
  struct Close {
    void operator()(sqlite3* handle) const;
  };
  [[noreturn]] void fail() const;
  void open(const char* what, int flags);

  std::string name_, bytes_;
  std::unique_ptr<std::uint64_t> steps_;  // left for the virtual machine
  std::unique_ptr<sqlite3, Close> handle_;
};

}  // namespace swaplab
