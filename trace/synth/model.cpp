#include "trace/synth/model.hpp"

#include "trace/error.hpp"

namespace swaplab::synth {

Tensor Model::stage(Context&, const Batch&, const Tensor&) {
  throw Error(ErrorKind::invariant, "this architecture has no pipeline stages");
}

Shape Model::boundary(const Context&, std::int64_t) const {
  throw Error(ErrorKind::invariant, "this architecture has no pipeline stages");
}

std::unique_ptr<Model> make_model(Context& c) {
  switch (c.config.model.family) {
    case Family::decoder:
      return make_decoder(c);
    case Family::encoder:
      return make_encoder(c);
    case Family::vit:
      return make_vit(c);
    case Family::resnet:
      return make_resnet(c);
    case Family::unet:
      return make_unet(c);
  }
  throw Error(ErrorKind::invariant, "unknown model family");
}

}  // namespace swaplab::synth
