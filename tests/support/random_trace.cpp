#include "tests/support/random_trace.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "trace/builder.hpp"

namespace swaplab::test {
namespace {

// splitmix64; no std:: distribution, whose values differ between libraries.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  template <class T>
  const T& of(const std::vector<T>& values) {
    return values[below(values.size())];
  }

 private:
  std::uint64_t state_;
};

class Maker {
 public:
  Maker(std::uint64_t seed, const RandomTraceOptions& options) : random_(seed), options_(options) {
    if (options.spool_folder != nullptr) builder_ = TraceBuilder::spooled(options.spool_folder);
  }

  Trace run() {
    header();
    signatures();
    const std::uint64_t parameters = 1 + random_.below(5);
    for (std::uint64_t i = 0; i < parameters; ++i) persistent_.push_back(alloc(true, true));
    if (options_.steady) {
      steady();
    } else {
      if (random_.one_in(2)) body(1 + random_.below(4));  // operators before the first iteration
      for (std::uint32_t i = 0; i < options_.iterations; ++i) iteration();
      if (random_.one_in(2)) body(1 + random_.below(4));
    }
    if (builder_.op_count() == 0) body(1);
    return builder_.finish();
  }

 private:
  std::string text(const char* plain) {
    static const std::vector<std::string> odd = {"",
                                                 "quote\"d",
                                                 "back\\slash",
                                                 "tab\tnew\nline",
                                                 "snow\u2603",
                                                 "\U0001F600",
                                                 "nul\x01"
                                                 "end",
                                                 "a b"};
    return options_.odd_text && random_.one_in(3) ? random_.of(odd)
                                                  : std::string(plain) + std::to_string(random_.below(4));
  }

  void header() {
    static const std::vector<std::string> extras = {"", "{}", R"({"cfg":{"batch":8,"dtype":"f4"},"seed":1})",
                                                    R"({"a\"b\\c":[1,-2,9007199254740993],"x":null})",
                                                    R"( { "spaced" : [ 1 , 2.5 , true ] } )"};
    TraceHeader h;
    h.torch = text("2.");
    h.source = "synthetic";
    h.device = "cuda:0";
    h.model = text("m");
    h.extra_json = options_.odd_text ? random_.of(extras) : std::string("{}");
    builder_.set_header(h);
  }

  std::int64_t amount() {
    if (random_.one_in(4)) return -1;
    const auto drawn = static_cast<std::int64_t>(random_.next() >> random_.below(60) >> 1);
    return options_.huge ? drawn : drawn & 0xfffffffff;
  }

  void signatures() {
    const std::uint64_t count = 2 + random_.below(6);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::string name = "aten." + text("op");
      std::string detail = "{}";
      if (!random_.one_in(3)) {
        detail = R"({"in":[[[)" + std::to_string(random_.below(99));
        detail += R"(,2],"f4"]],"attr":{"k":)" + std::to_string(random_.below(5)) + "}}";
      }
      TraceBuilder::Signature s;
      s.name = name;
      s.detail = detail;
      s.view = random_.one_in(5);
      s.flop = amount();
      s.read = Bytes{amount()};
      s.written = Bytes{amount()};
      s.scratch = Bytes{amount()};
      signatures_.push_back(builder_.add_signature(s));
    }
  }

  std::int64_t size() {
    const std::uint64_t kind = random_.below(12);
    if (kind == 0) return 0;
    if (kind == 1 && options_.huge)
      return (std::int64_t{1} << 53) + 1 + static_cast<std::int64_t>(random_.below(1000));
    return static_cast<std::int64_t>(1 + random_.below(std::uint64_t{1} << (1 + random_.below(34))));
  }

  StorageId alloc(bool external, bool keep) {
    static constexpr std::array kClasses = {StorageClass::unknown,  StorageClass::parameter,
                                            StorageClass::gradient, StorageClass::optimizer_state,
                                            StorageClass::buffer,   StorageClass::data};
    // One draw per statement: the order in which arguments are evaluated is the compiler's.
    const std::int64_t bytes = next_size_ >= 0 ? next_size_ : size();
    const char* device = random_.one_in(8) ? "cpu" : "cuda:0";
    const StorageId s = builder_.alloc(Bytes{bytes}, device, external);
    if (random_.one_in(3)) {
      const StorageClass cls = kClasses[random_.below(kClasses.size())];
      builder_.tag(s, cls, text("w"));
    }
    if (!keep) live_.push_back(s);
    return s;
  }

  std::vector<StorageId> some(std::uint64_t most) {
    std::vector<StorageId> chosen;
    const std::uint64_t count = random_.below(most + 1);
    for (std::uint64_t i = 0; i < count; ++i) {
      chosen.push_back(live_.empty() || random_.one_in(3) ? random_.of(persistent_) : random_.of(live_));
    }
    return chosen;
  }

  void op() {
    TraceBuilder::Op o;
    const std::vector<StorageId> in = some(4);
    std::vector<StorageId> written, out;
    for (const StorageId s : in) {
      if (random_.one_in(4)) written.push_back(s);
      if (random_.one_in(6)) out.push_back(s);  // a view, or the in-place result
    }
    const std::uint64_t born = random_.below(3);
    for (std::uint64_t i = 0; i < born; ++i) {
      out.push_back(alloc(false, false));
      if (random_.one_in(10)) out.push_back(out.back());
    }
    o.signature = random_.of(signatures_);
    o.phase = static_cast<Phase>(random_.below(9));
    o.stream = static_cast<std::uint16_t>(random_.one_in(4) ? random_.below(kMaxStreams) : 0);
    o.sync = random_.one_in(8) ? static_cast<SyncKind>(random_.below(5)) : SyncKind::none;
    if (!random_.one_in(3)) o.device_time = Nanos{static_cast<std::int64_t>(random_.below(1000000))};
    if (random_.one_in(2)) {
      const auto drawn = static_cast<std::int64_t>(random_.next() >> 1);
      o.host_time = Nanos{options_.huge ? drawn : drawn & 0xfffff};
    }
    if (random_.one_in(9)) o.host_gap = Nanos{0};
    o.in = in;
    o.out = out;
    o.written = written;
    builder_.op(o);
  }

  // What may stand between two operators.
  void between(bool micro) {
    while (random_.one_in(3) && !live_.empty()) {
      const std::size_t i = random_.below(live_.size());
      builder_.free(live_[i]);
      live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (random_.one_in(8)) alloc(true, false);
    if (random_.one_in(10)) resize();
    if (random_.one_in(8)) {
      const std::string phase = text("F");
      builder_.mark(MarkKind::phase, phase, random_.one_in(2) ? 3 : -1, Nanos{-1});
    }
    if (random_.one_in(12)) builder_.mark(MarkKind::other, "odd " + text("mark"), -1, Nanos{77});
    if (random_.one_in(9)) {
      const auto kept = some(6);
      builder_.saved(kept, random_.one_in(2) ? 1 : -1, micro ? 0 : -1);
    }
    if (random_.one_in(9)) {
      const std::uint64_t address = random_.next();
      const Bytes bytes{static_cast<std::int64_t>(random_.next())};
      builder_.memory_event(address, bytes, random_.one_in(2));
    }
  }

  void resize() {
    if (resizable_.empty() || random_.one_in(3)) {
      next_size_ = static_cast<std::int64_t>(random_.below(1000));
      const StorageId s = alloc(true, true);
      resizable_.push_back({s, next_size_});
      persistent_.push_back(s);
      next_size_ = -1;
      return;
    }
    auto& [storage, bytes] = resizable_[random_.below(resizable_.size())];
    const auto to = static_cast<std::int64_t>(random_.below(5000));
    builder_.resize(storage, Bytes{bytes}, Bytes{to});
    bytes = to;
  }

  void body(std::uint64_t ops) {
    const bool micro = random_.one_in(2);
    if (micro) builder_.mark(MarkKind::micro_begin, "", random_.one_in(2) ? 0 : -1, Nanos{-1});
    for (std::uint64_t i = 0; i < ops; ++i) {
      between(micro);
      op();
    }
    if (micro) builder_.mark(MarkKind::micro_end, "", -1, Nanos{5});
    between(false);
  }

  void iteration() {
    number_ += 1 + static_cast<std::int64_t>(random_.below(3));
    builder_.mark(MarkKind::iter_begin, random_.one_in(4) ? "val" : "train", number_, Nanos{number_ * 10});
    const std::uint64_t bodies = 1 + random_.below(2);
    for (std::uint64_t i = 0; i < bodies; ++i) body(1 + random_.below(options_.ops_per_iteration));
    if (random_.one_in(4))
      builder_.mark(MarkKind::step_skipped, "", random_.one_in(2) ? number_ : -1, Nanos{-1});
    builder_.mark(MarkKind::iter_end, "", random_.one_in(2) ? number_ : -1, Nanos{-1});
  }

  // Gradients of the last iteration are read and freed by the next; everything else dies in its own.
  void steady() {
    struct Step {
      SigId signature;
      std::vector<std::uint64_t> in;  // place in the list of activations so far
      std::int64_t bytes;
      bool parameter;
    };
    std::vector<Step> steps;
    const std::uint64_t count = 1 + random_.below(options_.ops_per_iteration);
    for (std::uint64_t i = 0; i < count; ++i) {
      Step step{random_.of(signatures_), {}, size() % (std::int64_t{1} << 40), random_.one_in(2)};
      for (std::uint64_t j = random_.below(3); i > 0 && j > 0; --j) step.in.push_back(random_.below(i));
      steps.push_back(step);
    }
    std::vector<StorageId> left;
    const std::uint64_t gradients = random_.below(4);
    for (std::uint32_t it = 0; it < options_.iterations; ++it) {
      builder_.mark(MarkKind::iter_begin, "train", it, Nanos{-1});
      std::vector<StorageId> made;
      for (const Step& step : steps) {
        std::vector<StorageId> in;
        for (const std::uint64_t i : step.in) in.push_back(made[i]);
        if (step.parameter) in.push_back(persistent_.front());
        made.push_back(builder_.alloc(Bytes{step.bytes}, "cuda:0", false));
        TraceBuilder::Op o;
        o.signature = step.signature;
        o.phase = Phase::forward;
        o.in = in;
        o.out = std::span(&made.back(), 1);
        o.device_time = Nanos{static_cast<std::int64_t>(100 + step.in.size())};
        builder_.op(o);
      }
      for (const StorageId s : left) {
        TraceBuilder::Op o;
        o.signature = signatures_.front();
        o.phase = Phase::optimizer;
        o.in = std::span(&s, 1);
        o.written = o.in;
        builder_.op(o);
        builder_.free(s);
      }
      left.clear();
      for (const StorageId s : made) builder_.free(s);
      for (std::uint64_t g = 0; g < gradients; ++g) {
        left.push_back(builder_.alloc(Bytes{static_cast<std::int64_t>(512 * (g + 1))}, "cuda:0", false));
        builder_.tag(left.back(), StorageClass::gradient, "grad" + std::to_string(g));
        TraceBuilder::Op o;
        o.signature = signatures_.back();
        o.phase = Phase::backward;
        o.out = std::span(&left.back(), 1);
        builder_.op(o);
      }
      builder_.mark(MarkKind::iter_end, "", it, Nanos{-1});
    }
  }

  Random random_;
  const RandomTraceOptions options_;
  TraceBuilder builder_;
  std::vector<SigId> signatures_;
  std::vector<StorageId> persistent_, live_;
  std::vector<std::pair<StorageId, std::int64_t>> resizable_;
  std::int64_t next_size_ = -1, number_ = -1;
};

}  // namespace

Trace random_trace(std::uint64_t seed, const RandomTraceOptions& options) {
  return Maker(seed, options).run();
}

}  // namespace swaplab::test
