#include "trace/import/sqlite_file.hpp"

#include <sqlite3.h>

#include <algorithm>
#include <filesystem>

#include "trace/error.hpp"

namespace swaplab {
namespace {

constexpr std::uint64_t kMaxCompressed = std::uint64_t{1} << 30;  // bytes, decompressed
// Virtual machine instructions: per byte of the file and at least. A sorted read of all rows of a report
// needs less than ten per byte.
constexpr std::uint64_t kStepsPerByte = 1000, kLeastSteps = 10'000'000;
constexpr int kStepsBetweenChecks = 10'000;

struct Finalize {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

// A path as the path part of a "file:" URI.
std::string uri_of(const std::string& path) {
  static constexpr char digits[] = "0123456789ABCDEF";
  std::string uri = "file:";
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '/' || c == '.' || c == '-' || c == '_';
    if (plain) {
      uri += c;
    } else {
      uri += '%';
      uri += digits[byte >> 4];
      uri += digits[byte & 15];
    }
  }
  return uri + "?immutable=1";
}

int count_down(void* steps) {
  auto& left = *static_cast<std::uint64_t*>(steps);
  if (left == 0) return 1;
  --left;
  return 0;
}

}  // namespace

bool SqliteRow::all_integers(int first, int count) const {
  for (int column = first; column < first + count; ++column) {
    if (sqlite3_column_type(statement_, column) != SQLITE_INTEGER) return false;
  }
  return true;
}
std::int64_t SqliteRow::integer(int column) const {
  return sqlite3_column_int64(statement_, column);
}
std::string_view SqliteRow::text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  if (text == nullptr) return {};
  return {text, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
}

void SqliteFile::Close::operator()(sqlite3* handle) const {
  sqlite3_close(handle);
}

void SqliteFile::open(const char* what, int flags) {
  sqlite3* raw = nullptr;
  const int code = sqlite3_open_v2(what, &raw, flags | SQLITE_OPEN_PRIVATECACHE, nullptr);
  handle_.reset(raw);
  if (code != SQLITE_OK) fail();
}

SqliteFile::SqliteFile(const ImportInput& input) : name_(input.name()) {
  std::uint64_t size = 0;
  if (!input.plain_path().empty()) {
    std::error_code code;
    size = std::filesystem::file_size(input.plain_path(), code);
    // An immutable database is read without its log, which may hold rows.
    if (std::filesystem::file_size(input.plain_path() + "-wal", code) > 0 && !code)
      throw Error(ErrorKind::input,
                  name_ + ": '" + name_ +
                      "-wal' beside it holds changes that are not in it yet; close the program "
                      "that writes it, or run: sqlite3 FILE 'PRAGMA wal_checkpoint(TRUNCATE)'");
    const std::string path = std::filesystem::absolute(input.plain_path(), code).string();
    open(uri_of(path).c_str(), SQLITE_OPEN_READONLY | SQLITE_OPEN_URI);
  } else {
    bytes_ = input.read_all(kMaxCompressed);
    size = bytes_.size();
    open(":memory:", SQLITE_OPEN_READWRITE);
    const auto length = static_cast<sqlite3_int64>(size);
    if (sqlite3_deserialize(handle_.get(), "main", reinterpret_cast<unsigned char*>(bytes_.data()), length,
                            length, SQLITE_DESERIALIZE_READONLY) != SQLITE_OK)
      fail();
  }
  // A report is data of others: nothing in its schema may run.
  sqlite3_db_config(handle_.get(), SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(handle_.get(), SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(handle_.get(), SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(handle_.get(), SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_limit(handle_.get(), SQLITE_LIMIT_LENGTH, 64 << 20);
  steps_ = std::make_unique<std::uint64_t>(std::max(size * kStepsPerByte, kLeastSteps) / kStepsBetweenChecks);
  sqlite3_progress_handler(handle_.get(), kStepsBetweenChecks, count_down, steps_.get());
  query("PRAGMA cell_size_check = ON", [](const SqliteRow&) {});
}

void SqliteFile::fail() const {
  const std::string what = handle_ == nullptr ? "out of memory"
                           : sqlite3_errcode(handle_.get()) == SQLITE_INTERRUPT
                               ? "its tables need more work than a report of this size can"
                               : sqlite3_errmsg(handle_.get());
  throw Error(ErrorKind::input, name_ + ": the SQLite database cannot be read: " + what);
}

std::vector<std::string> SqliteFile::columns(const std::string& table) {
  std::vector<std::string> names;
  query(
      "SELECT c.name FROM sqlite_schema s, pragma_table_info(s.name) c WHERE s.type = 'table' AND s.name = "
      "'" +
          table + "' AND s.sql NOT LIKE 'CREATE VIRTUAL%'",
      [&](const SqliteRow& row) { names.emplace_back(row.text(0)); });
  return names;
}

std::int64_t SqliteFile::count(const std::string& table) {
  std::int64_t rows = 0;
  query("SELECT count(*) FROM " + table, [&](const SqliteRow& row) { rows = row.integer(0); });
  return rows;
}

void SqliteFile::query(const std::string& sql, const std::function<void(const SqliteRow&)>& row) {
  sqlite3_stmt* raw = nullptr;
  if (sqlite3_prepare_v2(handle_.get(), sql.c_str(), -1, &raw, nullptr) != SQLITE_OK) fail();
  const Statement statement(raw);
  for (;;) {
    const int code = sqlite3_step(raw);
    if (code == SQLITE_DONE) return;
    if (code != SQLITE_ROW) fail();
    row(SqliteRow(raw));
  }
}

}  // namespace swaplab
