#include "policy/chameleon/params.hpp"

#include <algorithm>

#include "sim/wide_math.hpp"
#include "trace/error.hpp"

namespace swaplab::chameleon {
namespace {

using P = ChameleonParams;

Parameter<P> amount(std::string name, Amount P::*member, std::string description) {
  return {std::move(name),
          "bytes or share",
          ">= 0B | 0%..100% of the budget",
          std::move(description),
          [=](P& p, std::string_view text) {
            Amount value;
            if (!text.empty() && text.back() == '%') {
              std::string wrong = parse_fraction(text, 0, kUnchanged, value.share);
              if (!wrong.empty()) return wrong;
            } else if (std::string wrong = parse_bytes(text, value.bytes); !wrong.empty()) {
              return wrong + ", or a share of the budget such as 3.125%";
            }
            p.*member = value;
            return std::string();
          },
          [=](const P& p) {
            const Amount& value = p.*member;
            if (value.share < 0) return format_bytes_exact(value.bytes);
            std::string digits = std::to_string(value.share % 10'000 + 10'000).substr(1);
            while (!digits.empty() && digits.back() == '0') digits.pop_back();
            return std::to_string(value.share / 10'000) + (digits.empty() ? "" : "." + digits) + "%";
          }};
}

// Seconds with up to nine decimals, held as nanoseconds.
Parameter<P> seconds(std::string name, std::int64_t P::*member, std::string description) {
  return {std::move(name),
          "seconds",
          "0..1000000",
          std::move(description),
          [=](P& p, std::string_view text) {
            const std::size_t point = std::min(text.find('.'), text.size());
            std::string digits(point < text.size() ? text.substr(point + 1) : std::string_view());
            const bool long_tail = digits.size() > 9;
            digits.resize(9, '0');
            std::int64_t whole = 0, part = 0;
            if (long_tail || !parse_integer(text.substr(0, point), 0, 1'000'000, whole).empty() ||
                !parse_integer(digits, 0, 999'999'999, part).empty()) {
              return std::string("expected seconds from 0 to 1000000 with at most nine decimals");
            }
            p.*member = whole * 1'000'000'000 + part;
            return std::string();
          },
          [=](const P& p) {
            std::string digits = std::to_string(p.*member % 1'000'000'000 + 1'000'000'000).substr(1);
            while (digits.size() > 1 && digits.back() == '0') digits.pop_back();
            return std::to_string(p.*member / 1'000'000'000) + "." + digits;
          }};
}

Parameter<P> on_off(std::string name, std::string P::*member, std::string description) {
  return choice_parameter<P>(std::move(name), member, {"on", "off"}, std::move(description));
}

constexpr Bytes kPublicDevice{std::int64_t{64} << 30};

}  // namespace

Bytes Amount::of(Bytes budget) const {
  if (share < 0) return bytes;
  return Bytes{static_cast<std::int64_t>(static_cast<Wide>(budget.value) * share / kUnchanged)};
}

ChameleonParams public_defaults() {
  ChameleonParams p;
  p.tensor_size_filter = {Bytes{20LL << 20}, -1};
  p.reduction_memory = {Bytes{3LL << 30}, -1};
  p.target_memory = {Bytes{40LL << 30}, -1};
  p.redundant_memory = {Bytes{2LL << 30}, -1};
  p.adjust_memory = {Bytes{300LL << 20}, -1};
  return p;
}

ChameleonParams::ChameleonParams() {
  const auto share = [](Bytes bytes) {
    return Amount{Bytes{0},
                  static_cast<Ppm>(static_cast<Wide>(bytes.value) * kUnchanged / kPublicDevice.value)};
  };
  tensor_size_filter = share(Bytes{20LL << 20});
  reduction_memory = share(Bytes{3LL << 30});
  target_memory = share(Bytes{40LL << 30});
  redundant_memory = share(Bytes{2LL << 30});
  adjust_memory = share(Bytes{300LL << 20});
}

std::vector<Parameter<P>> chameleon_parameters() {
  ChameleonParams scaled, published = public_defaults();
  published.preset = "public";
  return {
      preset_parameter<P>(
          "preset", &P::preset, {{"scaled", scaled}, {"public", published}},
          "public: the public defaults in bytes; scaled: the same as shares of a 64 GiB device"),
      choice_parameter<P>("version", &P::version, {"v1", "v2"},
                          "v1: score and select; v2: every activation between two attention patterns"),
      choice_parameter<P>(
          "layer_rule", &P::layer_rule, {"equal", "single"},
          "logical layers of v1: equal operator counts, or one per direction (as HEAD is published)"),
      integer_parameter(
          "n_layers", &P::n_layers, -1, 100'000,
          "blocks of the model: (10 div n + 1) * n logical layers; -1: one per operator; 0 as 1"),
      seconds("duration_s", &P::duration_ns,
              "time of one iteration that the generator assumes; 0: as measured"),
      integer_parameter("D2H_bandwidth", &P::d2h_bandwidth, 1, 100'000'000, "assumed, MiB/s"),
      integer_parameter("H2D_bandwidth", &P::h2d_bandwidth, 1, 100'000'000, "assumed, MiB/s"),
      amount("tensor_size_filter", &P::tensor_size_filter, "smaller tensors stay"),
      choice_parameter<P>(
          "target_mode", &P::target_mode, {"false", "true"},
          "without swaps in the profiled step, aim at: peak - reduction_memory, or target_memory"),
      amount("reduction_memory", &P::reduction_memory, "below the peak without swapping"),
      amount("target_memory", &P::target_memory, "fixed target"),
      choice_parameter<P>("is_oom", &P::is_oom, {"false", "true"},
                          "swaplab plan: the profiled step had a failed allocation"),
      amount("redundant_memory", &P::redundant_memory, "reserve below the peak after a failed allocation"),
      amount("adjust_memory", &P::adjust_memory, "the reserve grows by this for a forced swap-out"),
      integer_parameter("size_coverage_weight", &P::size_coverage_weight, 0, 1'000'000,
                        "weight of the size against the coverage"),
      integer_parameter("free_stage_delay", &P::free_stage_delay, 0, 1000,
                        "stages from the end of a swap-out to the release of its bytes"),
      integer_parameter("swap_in_free_stage_delay", &P::swap_in_free_stage_delay, 0, 1000,
                        "stages from the end of a swap-in to the end of its bookkeeping"),
      integer_parameter("attn_per_stage", &P::attn_per_stage, 1, 1000, "v2: attention operators per layer"),
      integer_parameter("bucket", &P::bucket, -1, std::int64_t{1} << 50,
                        "v2: bytes that leave per forward stage; -1: all"),
      choice_parameter<P>("pref", &P::pref, {"BETTER_PERFORMANCE", "BETTER_MEMORY_SAVING"},
                          "v2: the latter moves optimizer state too"),
      choice_parameter<P>("detector", &P::detector, {"length+cosine", "length", "off"},
                          "what makes two iterations differ: the paper's test, the public code's, nothing"),
      fraction_parameter("op_diff_thresh", &P::op_diff_thresh, 0, 1'000'000'000,
                         "changed when the lengths differ by at least this share"),
      fraction_parameter("cosine_thresh", &P::cosine_thresh, 0, kUnchanged,
                         "changed when the cosine similarity is below this"),
      choice_parameter<P>(
          "similarity", &P::similarity, {"sequence", "counts"},
          "cosine of the integer sequences (the shorter padded with zeros) or of operator counts"),
      integer_parameter("warmup_step", &P::warmup_step, 0, 1'000'000,
                        "similar iterations before a plan is sought"),
      integer_parameter("stable_step", &P::stable_step, 1, 1'000'000,
                        "plans made before the last one is kept"),
      choice_parameter<P>("match", &P::match, {"fuzzy", "index"},
                          "how a plan finds its tensors: fingerprints, or operator and argument numbers"),
      on_off("swap_out", &P::swap_out, "follow the plan; off: passive swapping only"),
      on_off("swap_in", &P::swap_in, "ahead of use as planned; off: at the first use only"),
      choice_parameter<P>("order", &P::order, {"lifo", "fifo"},
                          "swap-ins of a stage: last out first, or first out first"),
      choice_parameter<P>(
          "release", &P::release, {"planned", "on_demand", "record_stream"},
          "of a swapped-out block: compute waits at the planned stage; when its bytes are needed; "
          "when the host sees the copy complete"),
      choice_parameter<P>(
          "passive_swap_out", &P::passive_swap_out, {"public", "any", "off"},
          "victims of a failed allocation: smallest that is enough else largest, no gradients "
          "(any: gradients where nothing else is left); off: the run ends"),
      on_off("synchronous_oom", &P::synchronous_oom,
             "a failed allocation waits for its swap-out on the host"),
      on_off("oom_feedback", &P::oom_feedback, "a failed allocation lowers the next plan's target"),
      choice_parameter<P>(
          "profiler", &P::profiler, {"own", "conventional"},
          "what profiling costs: lightweight and detailed modes, or every operator timed for ever"),
      integer_parameter("light_ns", &P::light_ns, 0, 1'000'000,
                        "host time per operator of the lightweight profiler"),
      integer_parameter("detailed_ns", &P::detailed_ns, 0, 1'000'000,
                        "host time per operator of the detailed profiler"),
      integer_parameter("conventional_ns", &P::conventional_ns, 0, 1'000'000,
                        "host time per operator of a conventional profiler"),
      integer_parameter("match_ns", &P::match_ns, 0, 1'000'000, "host time per operator of matching"),
      integer_parameter("generate_ns", &P::generate_ns, 0, 1'000'000,
                        "host time per operator of generating a plan"),
  };
}

ChameleonParams parse_chameleon(std::string_view text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  if (text.substr(0, colon) != "chameleon") {
    throw Error(ErrorKind::usage,
                "expected one policy, chameleon[:param=value,...]; found '" + std::string(text) + "'");
  }
  const auto rows = chameleon_parameters();
  std::vector<std::pair<std::string_view, std::string_view>> values;
  for (std::size_t from = colon + 1; from <= text.size();) {
    const std::size_t comma = std::min(text.find(',', from), text.size());
    const std::string_view part = text.substr(from, comma - from);
    from = comma + 1;
    const std::size_t equals = part.find('=');
    const std::string_view name = part.substr(0, equals);
    const bool known =
        std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return row.name == name; });
    if (equals == std::string_view::npos || !known) {
      std::vector<std::string> names;
      names.reserve(rows.size());
      for (const auto& row : rows) names.push_back(row.name);
      std::string all;
      for (const std::string& n : names) all += (all.empty() ? "" : ", ") + n;
      throw Error(ErrorKind::usage,
                  equals == std::string_view::npos
                      ? "policy 'chameleon': expected param=value, found '" + std::string(part) + "'"
                      : "policy 'chameleon' has no parameter '" + std::string(name) + "'" +
                            did_you_mean(name, names) + "; parameters: " + all);
    }
    values.emplace_back(name, part.substr(equals + 1));
  }
  ChameleonParams params;
  for (const auto& row : rows) {  // in the order of the table: the preset comes first
    for (const auto& [name, value] : values) {
      if (row.name != name) continue;
      const std::string expected = row.set(params, value);
      if (!expected.empty()) {
        throw Error(ErrorKind::usage,
                    "policy 'chameleon': '" + row.name + "=" + std::string(value) + "': " + expected);
      }
    }
  }
  return params;
}

GeneratorParams generator_params(const ChameleonParams& p, Bytes budget) {
  GeneratorParams g;
  g.version = p.version == "v2" ? GeneratorVersion::v2 : GeneratorVersion::v1;
  g.layer_rule = p.layer_rule == "single" ? LayerRule::single : LayerRule::equal_counts;
  g.n_layers = p.n_layers == 0 ? 1 : p.n_layers;
  g.d2h_mib_per_s = p.d2h_bandwidth;
  g.h2d_mib_per_s = p.h2d_bandwidth;
  g.tensor_size_filter = p.tensor_size_filter.of(budget);
  g.target_mode = p.target_mode == "true";
  g.reduction_memory = p.reduction_memory.of(budget);
  g.target_memory = p.target_memory.of(budget);
  g.redundant_memory = p.redundant_memory.of(budget);
  g.adjust_memory = p.adjust_memory.of(budget);
  g.size_coverage_weight = p.size_coverage_weight;
  g.free_stage_delay = p.free_stage_delay;
  g.swap_in_free_stage_delay = p.swap_in_free_stage_delay;
  g.attention_per_stage = p.attn_per_stage;
  g.swap_bucket = Bytes{p.bucket};
  g.memory_saving = p.pref == "BETTER_MEMORY_SAVING";
  return g;
}

}  // namespace swaplab::chameleon
