// Tables derived from run records: CSV and SQLite.
#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>

#include "experiments/sweep/results_store.hpp"
#include "trace/atomic_file.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

struct Columns {
  std::vector<std::string> factors, metrics;
};

// Factors in canonical order; metrics in the order of the table, then those of policies by name.
Columns columns_of(const std::vector<RunRecord>& records) {
  Columns columns;
  std::set<std::string> metrics;
  for (const RunRecord& record : records) {
    for (const auto& [name, value] : record.factors) {
      if (std::find(columns.factors.begin(), columns.factors.end(), name) == columns.factors.end())
        columns.factors.push_back(name);
    }
    for (const auto& [name, value] : record.metrics) metrics.insert(name);
  }
  for (const std::string& name : result_metric_names()) {
    if (metrics.erase(name) != 0) columns.metrics.push_back(name);
  }
  columns.metrics.insert(columns.metrics.end(), metrics.begin(), metrics.end());
  return columns;
}

// RFC 4180.
std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

class Database {
 public:
  explicit Database(const std::string& path) : path_(path) {
    sqlite3* raw = nullptr;
    const int code = ::sqlite3_open(path.c_str(), &raw);
    handle_.reset(raw);
    if (code != SQLITE_OK) fail();
  }
  void run(const std::string& sql) {
    if (::sqlite3_exec(handle_.get(), sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) fail();
  }
  [[noreturn]] void fail() {
    throw Error(ErrorKind::output, path_ + ": cannot write the database: " + ::sqlite3_errmsg(handle_.get()));
  }
  sqlite3* get() { return handle_.get(); }

 private:
  struct Close {
    void operator()(sqlite3* handle) const { ::sqlite3_close(handle); }
  };
  std::string path_;
  std::unique_ptr<sqlite3, Close> handle_;
};

std::string quoted_name(const std::string& name) {
  std::string text = "\"";
  for (const char c : name) {
    if (c == '"') text += '"';
    text += c;
  }
  return text + "\"";
}

class Statement {
 public:
  Statement(Database& database, const std::string& sql) : database_(database) {
    sqlite3_stmt* raw = nullptr;
    if (::sqlite3_prepare_v2(database.get(), sql.c_str(), -1, &raw, nullptr) != SQLITE_OK) database.fail();
    handle_.reset(raw);
  }
  void bind(int at, const std::string& text) {
    check(::sqlite3_bind_text(handle_.get(), at, text.c_str(), static_cast<int>(text.size()),
                              SQLITE_TRANSIENT));
  }
  void bind(int at, std::int64_t value) { check(::sqlite3_bind_int64(handle_.get(), at, value)); }
  void step() {
    if (::sqlite3_step(handle_.get()) != SQLITE_DONE) database_.fail();
    check(::sqlite3_reset(handle_.get()));
    check(::sqlite3_clear_bindings(handle_.get()));
  }

 private:
  void check(int code) {
    if (code != SQLITE_OK) database_.fail();
  }
  struct Finish {
    void operator()(sqlite3_stmt* handle) const { ::sqlite3_finalize(handle); }
  };
  Database& database_;
  std::unique_ptr<sqlite3_stmt, Finish> handle_;
};

}  // namespace

std::string records_csv(const std::vector<RunRecord>& records) {
  const Columns columns = columns_of(records);
  std::string text = "index,key,status";
  for (const std::string& name : columns.factors) text += "," + csv_cell(name);
  text += ",policy_resolved";
  for (const std::string& name : columns.metrics) text += "," + csv_cell(name);
  text += ",explanation\r\n";
  for (const RunRecord& record : records) {
    text += std::to_string(record.index) + "," + record.key + "," + record.status;
    for (const std::string& name : columns.factors) text += "," + csv_cell(record.factor(name));
    text += "," + csv_cell(record.policy);
    for (const std::string& name : columns.metrics) {
      const auto value = record.metric(name);
      text += value ? "," + std::to_string(*value) : std::string(",");
    }
    text += "," + csv_cell(record.explanation) + "\r\n";
  }
  return text;
}

void write_sqlite(const std::vector<RunRecord>& records, const std::string& path) {
  const std::string temporary = partial_file(path);
  ::unlink(temporary.c_str());
  try {
    Database database(temporary);
    const Columns columns = columns_of(records);
    std::string create =
        "CREATE TABLE runs (\"index\" INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, status TEXT NOT NULL";
    std::string insert = "INSERT INTO runs VALUES (?, ?, ?";
    for (const std::string& name : columns.factors) {
      create += ", " + quoted_name(name) + " TEXT";
      insert += ", ?";
    }
    create += ", policy_resolved TEXT";
    insert += ", ?";
    for (const std::string& name : columns.metrics) {
      create += ", " + quoted_name(name) + " INTEGER";
      insert += ", ?";
    }
    database.run("PRAGMA journal_mode=OFF");
    database.run("BEGIN");
    database.run(create + ", explanation TEXT)");
    {
      Statement statement(database, insert + ", ?)");
      for (const RunRecord& record : records) {
        int at = 0;
        statement.bind(++at, static_cast<std::int64_t>(record.index));
        statement.bind(++at, record.key);
        statement.bind(++at, record.status);
        for (const std::string& name : columns.factors) statement.bind(++at, record.factor(name));
        statement.bind(++at, record.policy);
        for (const std::string& name : columns.metrics) {
          ++at;
          if (const auto value = record.metric(name)) statement.bind(at, *value);
        }
        statement.bind(++at, record.explanation);
        statement.step();
      }
    }
    database.run("CREATE TABLE metrics (tag TEXT PRIMARY KEY, unit TEXT, description TEXT, better TEXT)");
    {
      Statement statement(database, "INSERT INTO metrics VALUES (?, ?, ?, ?)");
      for (const MetricDescription& metric : result_metric_table()) {
        statement.bind(1, metric.tag);
        statement.bind(2, metric.unit);
        statement.bind(3, metric.description);
        statement.bind(4, std::string(metric.better == Better::lower ? "lower" : "higher"));
        statement.step();
      }
    }
    database.run("COMMIT");
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0)
    throw Error(ErrorKind::output, path + ": cannot rename into place");
}

}  // namespace swaplab
