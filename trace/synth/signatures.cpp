#include "trace/synth/signatures.hpp"

#include <algorithm>

namespace swaplab::synth {
namespace {

std::uint64_t hash_words(std::span<const std::int64_t> words) {
  std::uint64_t h = 0x9e3779b97f4a7c15U;
  for (const std::int64_t word : words) {
    h = (h ^ static_cast<std::uint64_t>(word)) * 0xff51afd7ed558ccdU;
    h ^= h >> 32;
  }
  return h;
}

void describe(std::string& text, std::span<const Tensor* const> tensors) {
  text += '[';
  for (const Tensor* t : tensors) {
    if (text.back() != '[') text += ',';
    text += "[[";
    for (const std::int64_t size : t->shape()) {
      if (text.back() != '[') text += ',';
      text += std::to_string(size);
    }
    text += "],\"";
    text += dtype_name(t->dtype());
    text += "\"]";
  }
  text += ']';
}

}  // namespace

std::string signature_detail(std::span<const Tensor* const> in, std::span<const Tensor* const> out,
                             std::span<const Attr> attrs) {
  std::string text = "{\"in\":";
  describe(text, in);
  text += ",\"out\":";
  describe(text, out);
  text += ",\"attr\":[";
  for (const Attr& attr : attrs) {
    if (text.back() != '[') text += ',';
    text += attr.boolean ? (attr.value != 0 ? "true" : "false") : std::to_string(attr.value);
  }
  return text + "]}";
}

SigId SignatureTable::find(OperatorSink& sink, Aten op, Tensors in, Tensors out, Tensors written,
                           std::span<const Attr> attrs) {
  key_.clear();
  key_.push_back(static_cast<std::int64_t>(op) | static_cast<std::int64_t>(in.size()) << 16 |
                 static_cast<std::int64_t>(out.size()) << 36);
  for (const Tensors side : {in, out}) {
    for (const Tensor* t : side) {
      key_.push_back(static_cast<std::int64_t>(t->dtype()) | static_cast<std::int64_t>(t->shape().rank())
                                                                 << 8);
      key_.insert(key_.end(), t->shape().begin(), t->shape().end());
    }
  }
  std::int64_t booleans = 0;
  for (const Attr& attr : attrs) {
    key_.push_back(attr.value);
    booleans = booleans << 1 | (attr.boolean ? 1 : 0);
  }
  key_.push_back(booleans);

  const std::uint64_t hash = hash_words(key_);
  std::size_t at = hash & (slots_.size() - 1);
  for (; slots_[at].length != 0; at = (at + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[at];
    if (slot.hash == hash && slot.length == key_.size() &&
        std::equal(key_.begin(), key_.end(), keys_.begin() + slot.first))
      return slot.id;
  }
  const OperatorInfo& info = operator_info(op);
  const Work work = operator_work(op, in, out, written, attrs);
  const std::string detail = signature_detail(in, out, attrs);
  TraceBuilder::Signature signature;
  signature.name = info.name;
  signature.detail = detail;
  signature.flop = work.flop;
  signature.read = work.read;
  signature.written = work.written;
  signature.view = info.rule == WorkRule::none && op != Aten::empty && op != Aten::empty_like;
  const SigId id = sink.add_signature(signature);
  slots_[at] = {hash, static_cast<std::uint32_t>(keys_.size()), static_cast<std::uint32_t>(key_.size()), id};
  keys_.insert(keys_.end(), key_.begin(), key_.end());
  if (++count_ * 2 > slots_.size()) grow();
  return id;
}

void SignatureTable::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.length == 0) continue;
    std::size_t at = slot.hash & (slots_.size() - 1);
    while (slots_[at].length != 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = slot;
  }
}

}  // namespace swaplab::synth
