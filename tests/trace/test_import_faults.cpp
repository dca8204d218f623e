// Damaged and foreign input of every format: one clear error, or a trace that is consistent; never anything
// else.
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <filesystem>
#include <fstream>

#include "tests/trace/import_samples.hpp"
#include "trace/byte_source.hpp"

using namespace swaplab::test;

namespace {

// "" when the bytes import to a consistent trace, else the message of the one error.
std::string outcome(std::string_view bytes, std::string_view format) {
  try {
    const auto result = import_text(bytes, format);
    if (result.trace) CHECK(swaplab::examine_trace(*result.trace).problems.empty());
  } catch (const swaplab::Error& error) {
    return error.what();
  }
  return "";
}

// The error says where: a byte, a line, or that the file as a whole is none.
bool says_where(std::string_view message) {
  return contains(message, "byte ") || contains(message, "memory:") || contains(message, "is empty") ||
         contains(message, "SQLite database cannot be read");
}

class Folder {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() / ("swaplab_import_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string write(const std::string& name, const std::string& bytes) const {
    const std::string path = (path_ / name).string();
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

std::string file_refusal(const std::string& path) {
  try {
    swaplab::import_files({path});
  } catch (const swaplab::Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("import faults: every sample is recognised as what it is, by one importer only") {
  for (const ImportSample& sample : import_samples()) {
    CAPTURE(sample.format);
    CHECK(import_text(sample.bytes).report.format == sample.format);
  }
}

TEST_CASE("import faults: cut at every 1/16 of the file") {
  for (const ImportSample& sample : import_samples()) {
    CAPTURE(sample.format);
    for (std::size_t i = 0; i < 16; ++i) {
      CAPTURE(i);
      const std::string message =
          outcome(sample.bytes.substr(0, sample.bytes.size() * i / 16), sample.format);
      if (sample.whole || i == 0) {
        CHECK_MESSAGE(says_where(message), message);
      } else if (!message.empty()) {
        CHECK_MESSAGE(says_where(message), message);
      }
    }
  }
}

TEST_CASE("import faults: any byte changed, removed or doubled") {
  for (const ImportSample& sample : import_samples()) {
    CAPTURE(sample.format);
    const std::size_t step = std::max<std::size_t>(sample.bytes.size() / 400, 1);
    for (std::size_t at = 0; at < sample.bytes.size(); at += step) {
      for (const char value : {'\0', '\xff', '9', '-', '"', '\n'}) {
        std::string changed = sample.bytes;
        changed[at] = value;
        outcome(changed, sample.format);
      }
      std::string removed = sample.bytes, doubled = sample.bytes;
      removed.erase(at, 1);
      doubled.insert(at, 1, sample.bytes[at]);
      outcome(removed, sample.format);
      outcome(doubled, sample.format);
    }
  }
}

TEST_CASE("import faults: every number replaced by 2^63, beyond 64 bits, negative, NaN, inf") {
  for (const ImportSample& sample : import_samples()) {
    if (sample.format == "chakra" || sample.format == "nsys-sqlite") continue;  // binary
    CAPTURE(sample.format);
    for (std::size_t at = 0; at < sample.bytes.size(); ++at) {
      const auto digit = [&](std::size_t i) {
        return i < sample.bytes.size() && sample.bytes[i] >= '0' && sample.bytes[i] <= '9';
      };
      if (!digit(at) || (at > 0 && digit(at - 1))) continue;
      std::size_t end = at;
      while (digit(end)) ++end;
      for (const char* number : {"9223372036854775807", "9223372036854775808", "18446744073709551616", "-1",
                                 "-9223372036854775808", "NaN", "inf", "1e400", ""}) {
        std::string changed = sample.bytes;
        changed.replace(at, end - at, number);
        outcome(changed, sample.format);
      }
    }
  }
}

TEST_CASE("import faults: very deep JSON") {
  const std::string deep = std::string(300000, '[') + std::string(300000, ']');
  CHECK(contains(refusal("{\"schema\":\"1.0.1\",\"nodes\":[{\"id\":1,\"inputs\":" + deep + "}]}"),
                 "1024 deep"));
  CHECK(contains(refusal(chakra_json("{\"id\":1,\"inputs\":" + deep + "}")), "1024 deep"));
  CHECK(contains(refusal("[[1, 2, 8, 7], " + deep + "]"), "1024 deep"));
  CHECK(import_text("{\"x\":" + deep + ",\"traceEvents\":[]}", "kineto").report.found_count("events") == 0);
  CHECK(contains(refusal("{\"INSTRUCTION\":" + deep + "}"), ":1: expected one JSON object"));
  // Never more than what stands there: 2^30 levels are asked for by a file that has few.
  CHECK(contains(refusal("{\"traceEvents\":" + std::string(100000, '[')), "byte "));
}

TEST_CASE("import faults: texts that are not UTF-8") {
  std::string pipedream = kPipedream, simai = kSimai, chakra = kChakra;
  pipedream[pipedream.find("LSTM")] = '\xff';
  simai[simai.find("\na\t") + 1] = '\xfe';
  chakra[chakra.find("gemm")] = '\xc0';
  for (const std::string& bytes : {pipedream, simai, chakra})
    CHECK(note_count(import_text(bytes).report.repaired, "bytes that are not UTF-8") == 1);
  CHECK(contains(refusal("{\"schema\":\"1.0.1\",\"nodes\":[{\"id\":1,\"name\":\"\xff\"}]}"), "valid UTF-8"));
  CHECK(contains(refusal(chakra_json("{\"id\":1,\"name\":\"\xff\"}")), "valid UTF-8"));
  CHECK(contains(refusal("{\"INSTRUCTION\":\"\xff\"}"), ":1: expected one JSON object"));
  std::string g10 = kG10;
  g10[g10.find("A_Forward")] = '\xff';
  CHECK(contains(refusal(g10), "UTF-8"));
}

TEST_CASE("import faults: compressed files that end early, are damaged or go on") {
  const Folder folder;
  const std::string gz = swaplab::compress_for("x.gz", kKineto),
                    zst = swaplab::compress_for("x.zst", kKineto);
  CHECK(file_refusal(folder.write("whole.gz", gz)).empty());
  CHECK(file_refusal(folder.write("whole.zst", zst)).empty());
  for (std::size_t i = 1; i < 16; ++i) {
    CAPTURE(i);
    const std::string g = file_refusal(folder.write("cut.gz", gz.substr(0, gz.size() * i / 16)));
    CHECK_MESSAGE(contains(g, "gzip stream is damaged or ends early"), g);
    CHECK_MESSAGE(contains(g, "compressed byte "), g);
    const std::string z = file_refusal(folder.write("cut.zst", zst.substr(0, zst.size() * i / 16)));
    CHECK_MESSAGE(contains(z, "zstd stream"), z);
  }
  std::string flipped = gz;
  flipped[gz.size() / 2] = static_cast<char>(flipped[gz.size() / 2] ^ 0x55);
  CHECK(contains(file_refusal(folder.write("flipped.gz", flipped)), "byte "));
  CHECK(contains(file_refusal(folder.write("crc.gz", gz.substr(0, gz.size() - 8) + std::string(8, 'x'))),
                 "gzip stream is damaged"));
  CHECK(contains(file_refusal(folder.write("garbage.gz", gz + "garbage")),
                 "compressed byte " + std::to_string(gz.size()) +
                     ": expected the end of the file or another gzip stream"));
  CHECK(file_refusal(folder.write("padded.gz", gz + std::string(1000, '\0'))).empty());
  const std::size_t half = kKineto.size() / 2;
  CHECK(file_refusal(folder.write("members.gz", swaplab::compress_for("a.gz", kKineto.substr(0, half)) +
                                                    swaplab::compress_for("b.gz", kKineto.substr(half))))
            .empty());
  CHECK(contains(file_refusal(folder.write("garbage.zst", zst + "garbage")), "zstd stream"));
  CHECK(contains(file_refusal(folder.write("nothing.gz", swaplab::compress_for("x.gz", ""))), "is empty"));
  CHECK(contains(file_refusal(folder.write("gz.gz", swaplab::compress_for("x.gz", gz))), "binary data"));
}

TEST_CASE("import faults: empty files, folders, absent files, foreign files") {
  const Folder folder;
  CHECK(contains(file_refusal(folder.write("empty.json", "")), "is empty"));
  CHECK(contains(file_refusal(folder.path()), "is a directory"));
  CHECK(contains(file_refusal(folder.path() + "/absent"), "cannot open"));
  struct Foreign {
    std::string bytes;
    const char* said;
  };
  using namespace std::string_literals;
  const Foreign all[] = {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS pointer"},
      {"\x7f"
       "ELF\x02\x01\x01"s +
           std::string(60, '\0'),
       "a program"},
      {"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"s, "binary data"},
      {"PK\x03\x04\x14\0\0\0"s, "zip archive"},
      {"BZh91AY&SY\0"s, "bzip2"},
      {"\xfd"
       "7zXZ\0"s,
       "xz stream"},
      {"\x89HDF\r\n\x1a\n\0"s, "HDF5"},
      {"%PDF-1.7\n", "PDF"},
      {"<?xml version=\"1.0\"?><a/>", "XML"},
      {"<!DOCTYPE html><html>", "HTML"},
      {std::string(257, 'a') + "ustar\0"s, "tar archive"},
      {"QDSTRM\0"s, "Nsight Systems"},
      {"\0\0\0\0\0\0\0\0"s, "binary data"},
      {"hello, world\n", "no format that swaplab knows"},
      {"{\"a\": 1}", "JSON, but neither"},
      {"[1, 2, 3]", "JSON, but neither"},
      {"size(B),count,type,time(ns),busbw(GB/s),time(ns),busbw(GB/"
       "s)\n1048576,262144,float,44210,23.72,45100,23.25\n",
       "'swaplab calibrate'"},
      {"Running host_to_device_memcpy_ce.\nmemcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n 0\n0 26.03\n",
       "'swaplab calibrate'"},
  };
  for (const Foreign& foreign : all) {
    CAPTURE(foreign.said);
    const std::string message = refusal(foreign.bytes);
    CHECK_MESSAGE(contains(message, foreign.said), message);
  }
}

TEST_CASE("import faults: a trace's own files are no import") {
  CHECK(contains(refusal(kKineto, "kineot"), "unknown format 'kineot' (did you mean 'kineto'?)"));
}

TEST_CASE("import: sums beyond 2^62, second tables and a file given twice are errors that name the file") {
  std::string many = "id,lower,upper,size\n";
  for (int i = 0; i < 8200; ++i)
    many += std::to_string(i) + "," + std::to_string(i) + "," + std::to_string(i + 1) + ",1125899906842624\n";
  CHECK(contains(refusal(many), "add up to more than 2^62"));
  std::string kernels = "{\"traceEvents\":[";
  for (int i = 0; i < 1100; ++i)
    kernels += std::string(i == 0 ? "" : ",") +
               "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"pid\":0,\"tid\":7,\"ts\":1,\"dur\":"
               "9007199254740.0,"
               "\"args\":{\"device\":0,\"stream\":7,\"correlation\":1}}";
  CHECK(contains(refusal(kernels + "]}"), "add up to more than 2^62"));
  const auto refused = [](std::initializer_list<std::string_view> files) -> std::string {
    std::vector<swaplab::ImportInput> inputs;
    for (const std::string_view file : files) inputs.push_back(swaplab::ImportInput::memory("made", file));
    try {
      swaplab::import_trace(inputs);
    } catch (const swaplab::Error& error) {
      return error.what();
    }
    return "no error";
  };
  const std::string kernel = "Kernel ID: 0, Name: A_Forward\nExecution Time: 12\n";
  CHECK(contains(refused({kernel, "000 7 B\n", "000 8 B\n"}), "a second table of workspaces"));
  const std::string tensors = "tensor0 Is weight (global)?: 0, Size in byte: 8, Range:0--8\n";
  CHECK(contains(refused({kernel, tensors, tensors}), "a second tensors.config"));
}

TEST_CASE("import pickle: a flood of values ends at a bound") {
  const std::string flood = std::string("\x80\x04\x8c\x08segments", 12) + std::string(34u << 20, 'N') + ".";
  CHECK(contains(refusal(flood), "more than 2^25 values"));
}

TEST_CASE("import nsys: a write-ahead log beside the file is not passed over") {
  const Folder folder;
  const std::string path = folder.write("report.sqlite", nsys_sample());
  CHECK(swaplab::import_files({path}).report.found_count("kernels") == 3);
  folder.write("report.sqlite-wal", "");
  CHECK(swaplab::import_files({path}).report.found_count("kernels") == 3);
  folder.write("report.sqlite-wal", "rows");
  CHECK_THROWS_WITH_AS(swaplab::import_files({path}),
                       doctest::Contains("holds changes that are not in it yet"), swaplab::Error);
}
